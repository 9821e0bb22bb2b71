// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Start and end of the plugin, of devices, and of programs and libraries with images; properties of
//! devices.

use super::images::{LOADED, LoadedImage, entries_of, images_of, note_requires, range_of};
use super::*;
use crate::debug;
use crate::plugin::unified;
use std::ffi::{CString, c_char};

/// Starts the plugin: MPI, and the connection of all ranks of the job.
#[unsafe(no_mangle)]
pub extern "C" fn __tgt_rtl_init_plugin() -> i32 {
    status("starting", || {
        if !matches!(choice(), Choice::Stock) {
            // An unusable libomptarget ends the process here, not in the middle of a run.
            generation();
        }
        Ok(())
    })
}

/// Called once per unloaded library; shutdown happens at process exit.
#[unsafe(no_mangle)]
pub extern "C" fn __tgt_rtl_deinit_plugin() -> i32 {
    SUCCESS
}

/// Number of MPI devices; 0 lets libomptarget use its own host plugin.
#[unsafe(no_mangle)]
pub extern "C" fn __tgt_rtl_number_of_devices() -> i32 {
    guard("number_of_devices", 0, || {
        Ok(match choice() {
            Choice::Ready(plugin) => plugin.devices.len() as i32,
            Choice::OnUse(devices, _) | Choice::Refused(devices, _) => *devices as i32,
            Choice::Stock => 0,
        })
    })
}

/// Called when a program or library with images is loaded.
///
/// # Safety
/// `desc` is null or points to a descriptor of the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_register_lib(desc: *mut BinDesc) -> i32 {
    /// `OMP_DECLARE_TARGET_DTOR`: a kernel that runs when its image is unloaded.
    const DTOR: i32 = 4;
    status("register_lib", || {
        // SAFETY: the caller's promise; libomptarget registers only images with an entry table.
        let mut entries = unsafe { images_of(desc).iter().flat_map(|image| entries_of(image)) };
        lifecycle::register(desc as usize, entries.any(|e| e.flags & DTOR != 0));
        Ok(())
    })
}

/// Called when a program or library with images is unloaded: the devices unload the images.
///
/// # Safety
/// `desc` is what `register_lib` was called with.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_unregister_lib(desc: *mut BinDesc) -> i32 {
    if ending::is_exiting() && ending::is_inside() {
        lifecycle::finish_inside();
        return SUCCESS;
    }
    let unregister = || {
        // SAFETY: the caller's promise.
        let images = unsafe { images_of(desc) };
        // A loaded image may be a part of a registered one: LLVM unpacks images.
        let gone = |l: &mut LoadedImage| images.iter().any(|i| range_of(i).contains(&l.image));
        let gone: Vec<LoadedImage> = LOADED.lock().extract_if(.., gone).collect();
        let Some(plugin) = lifecycle::unregister(desc as usize) else { return Ok(()) };
        let unload = |l: &LoadedImage| plugin.unload(plugin.device(l.device)?, l.id);
        gone.iter().map(unload).fold(Ok(()), Result::and)
    };
    ending::with_locks(|| status("unregister_lib", unregister))
}

/// Takes the program's `requires` directives. Returns 0: success for LLVM 18, ignored before.
#[unsafe(no_mangle)]
pub extern "C" fn __tgt_rtl_init_requires(flags: i64) -> i64 {
    unified::note_report();
    note_requires(flags);
    SUCCESS.into()
}

/// Starts nothing: devices start together with the plugin.
#[unsafe(no_mangle)]
pub extern "C" fn __tgt_rtl_init_device(id: i32) -> i32 {
    let init = || {
        if let (Choice::OnUse(devices, _) | Choice::Refused(devices, _), None) = (choice(), lifecycle::started()) {
            // LLVM 18 calls this for all devices before any is used: too early for a program's MPI.
            debug!("device {id} of {devices} will start when it is used");
        } else {
            let device = plugin()?.device(id)?;
            debug!("{} is used", device.name());
            device.check_unified()?;
        }
        Ok(())
    };
    ending::with_locks(|| status("init_device", init))
}

/// Refuses to record or replay kernels. (If `LIBOMPTARGET_RECORD` is set, LLVM 18 calls this even
/// where a plugin does not have it.)
#[unsafe(no_mangle)]
pub extern "C" fn __tgt_rtl_initialize_record_replay(
    id: i32,
    _size: i64,
    _at: *mut c_void,
    _is_record: bool,
    _save_output: bool,
    _offset: *mut u64,
) -> i32 {
    on_device("initialize_record_replay", id, |device| {
        Err(Error::new(format!("kernels of {} can't be recorded: unset LIBOMPTARGET_RECORD", device.name())))
    })
}

/// Unloads the images of a device. (LLVM up to 18 never calls this.)
#[unsafe(no_mangle)]
pub extern "C" fn __tgt_rtl_deinit_device(id: i32) -> i32 {
    let deinit = || {
        let Some(plugin) = lifecycle::usable() else { return Ok(()) };
        plugin.unload_all(plugin.device(id)?)
    };
    ending::with_locks(|| status("deinit_device", deinit))
}

/// Replaces the value of `LIBOMPTARGET_INFO`.
#[unsafe(no_mangle)]
pub extern "C" fn __tgt_rtl_set_info_flag(flags: u32) {
    log::set_info_level(flags);
}

/// Prints the properties of a device.
#[unsafe(no_mangle)]
pub extern "C" fn __tgt_rtl_print_device_info(id: i32) {
    guard("print_device_info", (), || {
        let lines = plugin()?.device(id)?.info();
        let lines: String = lines.iter().map(|(what, value)| format!("    {what:<36}{value}\n")).collect();
        crate::plugin::program::console::print(lines.as_bytes());
        Ok(())
    });
}

/// Calls `report` with `context` and the name and value of each property of a device. (For LLVM 19
/// and later, which print them.)
///
/// # Safety
/// `report` may be called with `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_mpi_device_info(
    id: i32,
    report: Option<unsafe extern "C" fn(context: *mut c_void, name: *const c_char, value: *const c_char)>,
    context: *mut c_void,
) -> i32 {
    on_device("device_info", id, |device| {
        let report = report.ok_or_else(|| Error::new("the function to call is null"))?;
        for (name, value) in device.info() {
            let (name, value) = (CString::new(name).unwrap_or_default(), CString::new(value).unwrap_or_default());
            // SAFETY: the caller's promise.
            unsafe { report(context, name.as_ptr(), value.as_ptr()) };
        }
        Ok(())
    })
}
