// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Quiet images: their kernels do nothing but compute. With `OMPTARGET_MPI_ASYNC`, nobody waits for such a kernel
//! until something of its results is needed.
//!
//! Every function that a quiet image imports is on a list of functions that neither read nor write anything but memory,
//! and the image has no instruction that calls the system. The list may be too short: then the image is not quiet.

use crate::base::{Error, Result, elf};

/// The mathematical library, less the suffixes of its types.
const MATH: &[&str] = &[
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cabs",
    "carg",
    "cbrt",
    "ceil",
    "cexp",
    "cimag",
    "clog",
    "conj",
    "copysign",
    "cos",
    "cosh",
    "cpow",
    "cproj",
    "creal",
    "csqrt",
    "erf",
    "erfc",
    "exp",
    "exp10",
    "exp2",
    "expm1",
    "fabs",
    "fdim",
    "floor",
    "fma",
    "fmax",
    "fmin",
    "fmod",
    "frexp",
    "hypot",
    "ilogb",
    "j0",
    "j1",
    "jn",
    "ldexp",
    "lgamma",
    "llrint",
    "llround",
    "log",
    "log10",
    "log1p",
    "log2",
    "logb",
    "lrint",
    "lround",
    "modf",
    "nearbyint",
    "nextafter",
    "pow",
    "remainder",
    "remquo",
    "rint",
    "round",
    "scalbln",
    "scalbn",
    "sin",
    "sincos",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "tgamma",
    "trunc",
    "y0",
    "y1",
    "yn",
];

/// Other functions that only compute and use memory.
const OTHERS: &[&str] = &[
    "abs",
    "aligned_alloc",
    "bsearch",
    "calloc",
    "div",
    "free",
    "getpid",
    "labs",
    "ldiv",
    "llabs",
    "lldiv",
    "malloc",
    "memchr",
    "memcmp",
    "memcpy",
    "memmove",
    "memset",
    "posix_memalign",
    "qsort",
    "realloc",
    "strchr",
    "strcmp",
    "strlen",
    "strncmp",
    "strrchr",
    "__memcpy_chk",
    "__memmove_chk",
    "__memset_chk",
    "__cxa_atexit",
    "__cxa_finalize",
    "__gmon_start__",
    "__stack_chk_fail",
    "__tls_get_addr",
    "_ITM_deregisterTMCloneTable",
    "_ITM_registerTMCloneTable",
    "__gxx_personality_v0",
    "_Unwind_Resume",
];

/// The beginnings of more such names: libomp without its output, arithmetic of the compiler's library, operators `new`
/// and `delete`, and what throws C++'s exceptions.
const BEGINNINGS: &[&str] = &[
    "__kmpc_",
    "omp_get_",
    "omp_in_",
    "omp_init_",
    "omp_destroy_",
    "omp_set_",
    "omp_unset_",
    "omp_test_",
    "__mul",
    "__div",
    "__mod",
    "__udiv",
    "__umod",
    "__powi",
    "__fix",
    "__float",
    "_Znwm",
    "_Znam",
    "_ZdlPv",
    "_ZdaPv",
    "__cxa_begin_catch",
    "__cxa_end_catch",
    "__cxa_allocate_exception",
    "__cxa_free_exception",
    "__cxa_throw",
    "_ZSt9terminatev",
    "_ZSt17__throw_",
    "_ZSt19__throw_",
    "_ZSt20__throw_",
    "_ZSt24__throw_",
];

/// Fails, with the reason, unless the image is quiet.
pub(crate) fn check(file: &[u8]) -> Result<()> {
    if let Some(import) = elf::imports(file)?.iter().find(|name| !only_computes(name)) {
        return Err(Error::new(format!("it uses {import}")));
    }
    match elf::code(file)?.into_iter().any(calls_system) {
        true => Err(Error::new("it has instructions that call the system, or data among its code")),
        false => Ok(()),
    }
}

fn only_computes(import: &str) -> bool {
    let is_math = |name: &str| MATH.binary_search(&name).is_ok();
    let is_math = |name: &str| is_math(name) || name.strip_suffix(['f', 'l']).is_some_and(is_math);
    // A vector variant: "_ZGVbN2v_sin".
    let of_vector = |name: &str| name.strip_prefix("_ZGV")?.split_once('_').map(|(_, of)| is_math(of));
    is_math(import)
        || of_vector(import) == Some(true)
        || OTHERS.contains(&import)
        || (import != "__kmpc_error" && BEGINNINGS.iter().any(|beginning| import.starts_with(beginning)))
}

/// True if some instruction calls the system, or if there is data between the instructions.
#[cfg(target_arch = "x86_64")]
fn calls_system(code: &[u8]) -> bool {
    use iced_x86::{Code, Decoder, DecoderOptions};
    Decoder::new(64, code, DecoderOptions::NONE).iter().any(|instruction| {
        matches!(instruction.code(), Code::INVALID | Code::Syscall | Code::Sysenter | Code::Int_imm8)
    })
}

/// True if some instruction calls the system: SVC, whatever its immediate operand.
#[cfg(target_arch = "aarch64")]
fn calls_system(code: &[u8]) -> bool {
    code.as_chunks::<4>().0.iter().any(|word| u32::from_le_bytes(*word) & 0xffe0_001f == 0xd400_0001)
}

#[cfg(test)]
#[path = "../../test/rust/unit/plugin/quiet.rs"]
mod tests;
