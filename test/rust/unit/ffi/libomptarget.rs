// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/ffi/libomptarget.rs`.

use super::*;

const NEW: &[&str] = &["__tgt_interop_init", "__tgt_target_kernel"];

/// The decision for these sonames and what each exports.
fn decided(sonames: &[(&str, &[&str])]) -> Result<Generation> {
    let path = |(soname, exports): &(&str, &[&str])| {
        (format!("/lib/{soname}"), release(soname, |symbol| exports.contains(&symbol)))
    };
    decide(&sonames.iter().map(path).collect())
}

#[test]
fn releases_are_known_by_the_soname_and_14_by_what_it_exports() {
    for version in ["15", "16", "17", "17git"] {
        let soname = format!("libomptarget.so.{version}");
        assert_eq!(decided(&[(&soname, NEW)]), Ok(Generation::Llvm15), "{soname}");
    }
    for soname in ["libomptarget.so.18", "libomptarget.so.18.1"] {
        assert_eq!(decided(&[(soname, NEW)]), Ok(Generation::Llvm18), "{soname}");
    }
    assert_eq!(decided(&[("libomptarget.so", &NEW[..1])]), Ok(Generation::Llvm14));
}

#[test]
fn what_is_unknown_is_refused_by_name() {
    for one in [("libomptarget.so", NEW), ("libomptarget.so", &[]), ("libomptarget.so.x", NEW)] {
        assert!(decided(&[one]).unwrap_err().to_string().contains("not known which LLVM /lib/libomptarget.so"));
    }
    for soname in ["libomptarget.so.13", "libomptarget.so.19.1"] {
        assert!(decided(&[(soname, NEW)]).unwrap_err().to_string().contains("loads no plugins this way"));
    }
    assert!(decided(&[]).unwrap_err().to_string().contains("no libomptarget.so is loaded"));
}

#[test]
fn two_may_meet_if_they_call_alike() {
    let [a, b, c] = ["libomptarget.so.16", "libomptarget.so.17", "libomptarget.so.18.1"].map(|name| (name, NEW));
    assert_eq!(decided(&[a, b]), Ok(Generation::Llvm15));
    let both = decided(&[a, c]).unwrap_err().to_string();
    assert!(both.contains("libomptarget.so.16, /lib/libomptarget.so.18.1"), "{both}");
}
