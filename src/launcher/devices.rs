// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! `--info`: a rank of the job that only queries the plugin, in place of an OpenMP program.

use crate::base::{Error, Result};
use libloading::os::unix::{Library, RTLD_NOW, Symbol};
use std::path::Path;

/// Prints the devices of the job through the plugin in this file, as llvm-omp-device-info does.
pub fn print(plugin: &Path) -> Result<()> {
    let failed = |e: libloading::Error| Error::new(format!("{}: {e}", plugin.display()));
    // SAFETY: this project's own plugin; its exports are what `ffi` defines, and it is never
    // unloaded.
    unsafe {
        let library = Library::open(Some(plugin), RTLD_NOW).map_err(failed)?;
        let count: Symbol<unsafe extern "C" fn() -> i32> =
            library.get(b"__tgt_rtl_number_of_devices").map_err(failed)?;
        let print: Symbol<unsafe extern "C" fn(i32)> = library.get(b"__tgt_rtl_print_device_info").map_err(failed)?;
        let devices = count();
        if devices < 1 {
            return Err(Error::new("the job has no devices"));
        }
        for device in 0..devices {
            println!("Device ({device}):");
            print(device);
        }
    }
    Ok(())
}
