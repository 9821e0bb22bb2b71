// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Kernels as the source has them.

/// "main, line 12" for `__omp_offloading_10302_2f6a_main_l12`: the compiler's prefix, device
/// and number of the source file, the function, the line. Any other name stays as it is.
pub fn of_kernel(symbol: &str) -> String {
    parts(symbol).unwrap_or_else(|| symbol.to_string())
}

fn parts(symbol: &str) -> Option<String> {
    let rest = symbol.strip_prefix("__omp_offloading_")?.trim_start_matches('_');
    let (device, rest) = rest.split_once('_')?;
    let (file, rest) = rest.split_once('_')?;
    let is_hex = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_hexdigit());
    let (function, place) = rest.rsplit_once("_l").filter(|_| is_hex(device) && is_hex(file))?;
    let digits = place.bytes().take_while(u8::is_ascii_digit).count();
    let (line, suffix) = place.split_at(digits);
    if function.is_empty() || line.is_empty() {
        return None;
    }
    let function = demangled(function);
    // Constructors of globals have one, and the second region of a line.
    let suffix = suffix.trim_start_matches('_');
    Some(if suffix.is_empty() {
        format!("{function}, line {line}")
    } else {
        format!("{function}, line {line} ({suffix})")
    })
}

fn demangled(function: &str) -> String {
    if !function.starts_with("_Z") {
        return function.to_string();
    }
    let symbol = cpp_demangle::Symbol::new(function).ok();
    symbol.and_then(|s| s.demangle().ok()).unwrap_or_else(|| function.to_string())
}

#[cfg(test)]
mod tests {
    use super::of_kernel;

    #[test]
    fn kernels_are_told_by_function_and_line() {
        for (symbol, name) in [
            ("__omp_offloading_10302_2f6a_main_l12", "main, line 12"),
            ("__omp_offloading_fd00_1a_a_long_l_name_l7", "a_long_l_name, line 7"),
            ("__omp_offloading_3b_4c__ZN1a4stepEPdi_l140", "a::step(double*, int), line 140"),
            ("__omp_offloading__3b_4c_table_l5_ctor", "table, line 5 (ctor)"),
            ("__omp_offloading_3b_4c_main_l9_1", "main, line 9 (1)"),
            ("__omp_offloading_3b_4c__Znonsense_l9", "_Znonsense, line 9"),
        ] {
            assert_eq!(of_kernel(symbol), name);
        }
    }

    #[test]
    fn other_names_stay() {
        for symbol in
            ["", "saxpy", "at 0x1234", "__omp_offloading_", "__omp_offloading_xy_1_main_l3", "__omp_offloading_1_2_l3"]
        {
            assert_eq!(of_kernel(symbol), symbol);
        }
    }
}
