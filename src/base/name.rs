// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Kernels, types and signals as people know them.

use std::collections::HashMap;
use std::ffi::c_int;
use std::fmt;

/// The longest name that is demangled, in bytes: one that refers to parts of itself again and
/// again would grow without bounds.
const LONGEST: usize = 8192;

/// Names of different kernels. Where two would look alike, device and number of the source
/// file stand behind them.
pub fn of_kernels(symbols: &[String]) -> Vec<String> {
    let names: Vec<String> = symbols.iter().map(|s| of_kernel(s)).collect();
    let mut times = HashMap::new();
    names.iter().for_each(|n| *times.entry(n).or_insert(0) += 1);
    let name = |(symbol, name): (&String, &String)| match split(symbol) {
        Some((device, file, _)) if times[name] > 1 => format!("{name} (file {device}_{file})"),
        _ => name.clone(),
    };
    symbols.iter().zip(&names).map(name).collect()
}

/// "main, line 12" for `__omp_offloading_10302_2f6a_main_l12`: the compiler's prefix, device
/// and number of the source file, the function, the line. Any other name stays as it is.
pub fn of_kernel(symbol: &str) -> String {
    parts(symbol).unwrap_or_else(|| symbol.to_string())
}

/// Device and number of the file, and what follows.
fn split(symbol: &str) -> Option<(&str, &str, &str)> {
    let rest = symbol.strip_prefix("__omp_offloading_")?.trim_start_matches('_');
    let (device, rest) = rest.split_once('_')?;
    let (file, rest) = rest.split_once('_')?;
    let is_hex = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_hexdigit());
    (is_hex(device) && is_hex(file)).then_some((device, file, rest))
}

fn parts(symbol: &str) -> Option<String> {
    let (_, _, rest) = split(symbol)?;
    let (function, place) = rest.rsplit_once("_l")?;
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
    let name = function.starts_with("_Z").then(|| demangle(function)).flatten();
    name.unwrap_or_else(|| function.to_string())
}

fn demangle(symbol: &str) -> Option<String> {
    let mut name = Name(String::new());
    cpp_demangle::Symbol::new(symbol).ok()?.structured_demangle(&mut name, &Default::default()).ok()?;
    Some(name.0)
}

/// A name no longer than [`LONGEST`].
struct Name(String);

impl fmt::Write for Name {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        if self.0.len() + part.len() > LONGEST {
            return Err(fmt::Error);
        }
        self.0.push_str(part);
        Ok(())
    }
}

/// "signal SIGKILL" for 9.
pub fn of_signal(signal: c_int) -> String {
    let name = match signal {
        libc::SIGHUP => "HUP",
        libc::SIGINT => "INT",
        libc::SIGQUIT => "QUIT",
        libc::SIGILL => "ILL",
        libc::SIGTRAP => "TRAP",
        libc::SIGABRT => "ABRT",
        libc::SIGBUS => "BUS",
        libc::SIGFPE => "FPE",
        libc::SIGKILL => "KILL",
        libc::SIGSEGV => "SEGV",
        libc::SIGPIPE => "PIPE",
        libc::SIGALRM => "ALRM",
        libc::SIGTERM => "TERM",
        libc::SIGXCPU => "XCPU",
        libc::SIGXFSZ => "XFSZ",
        libc::SIGSYS => "SYS",
        _ => return format!("signal {signal}"),
    };
    format!("signal SIG{name}")
}

/// "std::runtime_error" for `St13runtime_error`: the name of a type as the Itanium C++ ABI
/// has it.
pub fn of_type(symbol: &str) -> String {
    let info = demangle(&format!("_ZTI{symbol}"));
    info.and_then(|text| Some(text.strip_prefix("typeinfo for ")?.to_string())).unwrap_or_else(|| symbol.to_string())
}

#[cfg(test)]
mod tests {
    use super::{demangled, of_kernel, of_kernels, of_signal, of_type};

    #[test]
    fn signals_have_names() {
        assert_eq!((of_signal(libc::SIGBUS), of_signal(200)), ("signal SIGBUS".into(), "signal 200".into()));
    }

    #[test]
    fn types_are_named_as_in_the_source() {
        for (symbol, name) in
            [("i", "int"), ("St13runtime_error", "std::runtime_error"), ("PKc", "char const*"), ("?", "?")]
        {
            assert_eq!(of_type(symbol), name);
        }
    }

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
    fn names_that_double_themselves_stay() {
        // f(a<int>, a<a<int>, a<int>>, …): each parameter has the one before twice.
        let mut symbol = String::from("_Z1f1aIiE");
        assert_eq!(demangled(&(symbol.clone() + "S_IS0_S0_E")), "f(a<int>, a<a<int>, a<int> >)");
        for last in "0123456789ABCDEFGHIJKLMNOPQRST".chars() {
            symbol += &format!("S_IS{last}_S{last}_E");
        }
        assert_eq!(demangled(&symbol), symbol);
    }

    #[test]
    fn names_that_look_alike_have_their_file() {
        let symbols = ["__omp_offloading_3_1a_f_l7", "__omp_offloading_3_1b_f_l7", "__omp_offloading_3_1b_f_l8", "f"];
        let names = of_kernels(&symbols.map(str::to_string));
        assert_eq!(names, ["f, line 7 (file 3_1a)", "f, line 7 (file 3_1b)", "f, line 8", "f"]);
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
