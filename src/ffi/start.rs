// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Start and end: of the plugin, of devices, of what has images; and what is known of a device.

use super::images::{LOADED, LoadedImage, entries_of, images_of, range_of};
use super::types::*;
use super::*;
use crate::debug;
use std::ffi::{CString, c_char};

/// True if any of these images has kernels to run when it goes.
fn have_destructors(images: &[DeviceImage]) -> bool {
    /// `OMP_DECLARE_TARGET_DTOR`.
    const DTOR: i32 = 4;
    // SAFETY: libomptarget registers only images with an entry table.
    images.iter().any(|i| unsafe { entries_of(i) }.iter().any(|e| e.flags & DTOR != 0))
}

/// Starts the plugin: MPI, and the meeting of all ranks of the job.
#[unsafe(no_mangle)]
pub extern "C" fn __tgt_rtl_init_plugin() -> i32 {
    guard("starting", FAIL, || {
        if !matches!(choice(), Choice::Stock) {
            // What can't work shall end here, not behind half a run.
            generation();
        }
        Ok(SUCCESS)
    })
}

/// libomptarget calls this once per library that goes; the end comes with the process's.
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
            Choice::OnUse(devices, _) => *devices as i32,
            Choice::Stock => 0,
        })
    })
}

/// A program or library with images appears.
///
/// # Safety
/// `desc` is null or points to a descriptor of the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_register_lib(desc: *mut BinDesc) -> i32 {
    // SAFETY: the caller's promise.
    let images = unsafe { images_of(desc) };
    let destructors = have_destructors(images);
    let early = !USED.load(Ordering::SeqCst);
    REGISTERED.lock().push(Registered { desc: desc as usize, needs_devices: destructors || early });
    if early {
        notice_exit(true);
    }
    SUCCESS
}

/// A program or library with images goes: the devices unload them.
///
/// # Safety
/// `desc` is what `register_lib` was called with.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_unregister_lib(desc: *mut BinDesc) -> i32 {
    if EXITING.load(Ordering::SeqCst) && ending::is_inside() {
        finish_inside();
        return SUCCESS;
    }
    guard("unregister_lib", FAIL, || {
        // SAFETY: the caller's promise.
        let images = unsafe { images_of(desc) };
        // What was loaded may be a part of what was registered: LLVM unpacks images.
        let gone = |l: &mut LoadedImage| images.iter().any(|i| range_of(i).contains(&l.image));
        let gone: Vec<LoadedImage> = LOADED.lock().extract_if(.., gone).collect();
        REGISTERED.lock().retain(|r| r.desc != desc as usize);
        if EXITING.load(Ordering::SeqCst) || is_closed() {
            // The devices will be gone before anyone misses the memory.
            finish_if_unused();
            return Ok(SUCCESS);
        }
        let Some(plugin) = started() else { return Ok(SUCCESS) };
        done(gone.iter().try_for_each(|l| plugin.unload(plugin.device(l.device)?, l.id)))
    })
}

/// Takes the program's `requires` directives; 0, which LLVM 18 takes for success and no
/// earlier one looks at.
#[unsafe(no_mangle)]
pub extern "C" fn __tgt_rtl_init_requires(flags: i64) -> i64 {
    note_requires(flags);
    SUCCESS.into()
}

pub(super) fn note_requires(flags: i64) {
    /// `OMP_REQ_UNIFIED_SHARED_MEMORY`.
    const UNIFIED_SHARED_MEMORY: i64 = 8;
    static SAID: AtomicBool = AtomicBool::new(false);
    if flags & UNIFIED_SHARED_MEMORY != 0 && !SAID.swap(true, Ordering::Relaxed) {
        log::warning(
            "the program requires unified_shared_memory, but MPI devices have memory of their own: \
             a region that uses unmapped host memory will fail",
        );
    }
}

/// Starts a device; the plugin's start did so already.
#[unsafe(no_mangle)]
pub extern "C" fn __tgt_rtl_init_device(id: i32) -> i32 {
    guard("init_device", FAIL, || {
        if let (Choice::OnUse(devices, _), None) = (choice(), started()) {
            // LLVM 18 asks this of all devices before any is used: too early for a program's MPI.
            debug!("device {id} of {devices} will be spawned when it is used");
        } else {
            debug!("{} is used", plugin()?.device(id)?.name());
        }
        Ok(SUCCESS)
    })
}

/// Refuses to record kernels, or to replay them. (LLVM 18 calls this when
/// `LIBOMPTARGET_RECORD` is set, even if a plugin does not have it.)
#[unsafe(no_mangle)]
pub extern "C" fn __tgt_rtl_initialize_record_replay(
    id: i32,
    _size: i64,
    _at: *mut c_void,
    _is_record: bool,
    _save_output: bool,
    _offset: *mut u64,
) -> i32 {
    guard("initialize_record_replay", FAIL, || {
        let device = plugin()?.device(id)?;
        Err(Error::new(format!("kernels of {} can't be recorded: unset LIBOMPTARGET_RECORD", device.name())))
    })
}

/// Ends the use of a device: its images are unloaded. (LLVM up to 18 never calls this.)
#[unsafe(no_mangle)]
pub extern "C" fn __tgt_rtl_deinit_device(id: i32) -> i32 {
    guard("deinit_device", FAIL, || {
        let Some(plugin) = started().filter(|_| !is_closed()) else { return Ok(SUCCESS) };
        done(plugin.unload_all(plugin.device(id)?))
    })
}

/// Sets what `LIBOMPTARGET_INFO` would.
#[unsafe(no_mangle)]
pub extern "C" fn __tgt_rtl_set_info_flag(flags: u32) {
    log::set_info_level(flags);
}

/// Prints what is known of a device.
#[unsafe(no_mangle)]
pub extern "C" fn __tgt_rtl_print_device_info(id: i32) {
    guard("print_device_info", (), || {
        let lines = plugin()?.device(id)?.info();
        let lines: String = lines.iter().map(|(what, value)| format!("    {what:<36}{value}\n")).collect();
        crate::plugin::console::print(lines.as_bytes());
        Ok(())
    });
}

/// Tells what is known of a device: calls `tell` with `context`, a property's name and
/// its value, for each of them. (For LLVM 19 and later, which prints them itself.)
///
/// # Safety
/// `tell` may be called with `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_mpi_device_info(
    id: i32,
    tell: Option<unsafe extern "C" fn(context: *mut c_void, name: *const c_char, value: *const c_char)>,
    context: *mut c_void,
) -> i32 {
    guard("device_info", FAIL, || {
        let tell = tell.ok_or_else(|| Error::new("the function to tell is null"))?;
        for (name, value) in plugin()?.device(id)?.info() {
            let (name, value) = (CString::new(name).unwrap_or_default(), CString::new(value).unwrap_or_default());
            // SAFETY: the caller's promise.
            unsafe { tell(context, name.as_ptr(), value.as_ptr()) };
        }
        Ok(SUCCESS)
    })
}
