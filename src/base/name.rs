// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Names of kernels, types and signals for the user.

use std::collections::HashMap;
use std::ffi::c_int;
use std::fmt;

/// The longest demangled name, in bytes: a name that repeats parts of itself grows without bounds.
const LONGEST: usize = 8192;

/// The names of different kernels, with device and number of the source file where two are equal.
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

/// "main, line 12" for `__omp_offloading_10302_2f6a_main_l12`: the compiler's prefix, device and number
/// of the source file, the function, the line. Other names stay unchanged.
pub(crate) fn of_kernel(symbol: &str) -> String {
    parts(symbol).unwrap_or_else(|| symbol.to_string())
}

/// Splits a symbol into device and number of the file, and the rest.
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
    // Constructors of globals have a suffix, and so has the second region of a line.
    let suffix = suffix.trim_start_matches('_');
    Some(if suffix.is_empty() {
        format!("{function}, line {line}")
    } else {
        format!("{function}, line {line} ({suffix})")
    })
}

/// The name of a C++ function; other names stay unchanged.
pub(crate) fn demangled(function: &str) -> String {
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
pub(crate) fn of_signal(signal: c_int) -> String {
    macro_rules! name {
        ($($NAME:ident)+) => {
            match signal {
                $( libc::$NAME => format!("signal {}", stringify!($NAME)), )+
                _ => format!("signal {signal}"),
            }
        };
    }
    name!(SIGHUP SIGINT SIGQUIT SIGILL SIGTRAP SIGABRT SIGBUS SIGFPE SIGKILL SIGSEGV SIGPIPE SIGALRM SIGTERM
        SIGXCPU SIGXFSZ SIGSYS)
}

/// "std::runtime_error" for `St13runtime_error`, a type's name in the Itanium C++ ABI.
pub(crate) fn of_type(symbol: &str) -> String {
    let info = demangle(&format!("_ZTI{symbol}"));
    info.and_then(|text| Some(text.strip_prefix("typeinfo for ")?.to_string())).unwrap_or_else(|| symbol.to_string())
}

#[cfg(test)]
#[path = "../../test/rust/unit/base/name.rs"]
mod tests;
