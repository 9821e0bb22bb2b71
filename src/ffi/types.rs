// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The records that libomptarget passes, laid out as in LLVM 16's `omptarget.h`.

use std::ffi::{c_char, c_void};

// LLVM's `TargetAllocTy`.
pub const ALLOC_DEVICE: i32 = 0;
pub const ALLOC_HOST: i32 = 1;
pub const ALLOC_SHARED: i32 = 2;
pub const ALLOC_DEFAULT: i32 = 3;
/// From LLVM 17 on. Every allocation here is non-blocking.
pub const ALLOC_DEVICE_NON_BLOCKING: i32 = 4;

/// `__tgt_offload_entry`: a kernel (size 0) or a global.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct OffloadEntry {
    pub addr: *mut c_void,
    pub name: *mut c_char,
    /// Bytes of a global; 0 for a function.
    pub size: usize,
    /// `OpenMPOffloadingDeclareTargetFlags`.
    pub flags: i32,
    /// Of an entry `OMP_REGISTER_REQUIRES` (LLVM 19): the flags of `requires` directives.
    pub data: i32,
}

/// `__tgt_device_image`: an image as the program contains it.
#[repr(C)]
pub struct DeviceImage {
    pub image_start: *mut c_void,
    /// One past the image's last byte.
    pub image_end: *mut c_void,
    /// The entries whose addresses the program requests.
    pub entries_begin: *mut OffloadEntry,
    pub entries_end: *mut OffloadEntry,
}

/// `__tgt_image_info`.
#[repr(C)]
pub struct ImageInfo {
    /// The processor that the image was built for.
    pub arch: *const c_char,
}

/// `__tgt_bin_desc`: all images of a program or library.
#[repr(C)]
pub struct BinDesc {
    pub num_device_images: i32,
    pub device_images: *mut DeviceImage,
    pub host_entries_begin: *mut OffloadEntry,
    pub host_entries_end: *mut OffloadEntry,
}

/// `__tgt_target_table`: the device's addresses of an image's entries, in their order.
#[repr(C)]
pub struct TargetTable {
    pub entries_begin: *mut OffloadEntry,
    pub entries_end: *mut OffloadEntry,
}

/// `__tgt_device_binary`: an image that was loaded on a device.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DeviceBinary {
    /// Identifies the image to the plugin.
    pub handle: usize,
}

/// `__tgt_async_info`; later releases append fields, which this library does not touch.
#[repr(C)]
pub struct AsyncInfo {
    /// A queue while operations are pending, else null.
    pub queue: *mut c_void,
}

/// `__tgt_device_info`; always null here.
#[repr(C)]
pub struct DeviceInfo {
    pub context: *mut c_void,
    pub device: *mut c_void,
}

/// The head of `KernelArgsTy`, which all its versions have in common.
#[repr(C)]
pub struct KernelArgs {
    pub version: u32,
    pub num_args: u32,
}

/// `KernelArgsTy` from version 2 on.
#[repr(C)]
pub struct KernelArgs2 {
    pub head: KernelArgs,
    pub arg_base_ptrs: *mut *mut c_void,
    pub arg_ptrs: *mut *mut c_void,
    pub arg_sizes: *mut i64,
    pub arg_types: *mut i64,
    pub arg_names: *mut *mut c_void,
    pub arg_mappers: *mut *mut c_void,
    pub tripcount: u64,
    pub flags: u64,
    pub num_teams: [u32; 3],
    pub thread_limit: [u32; 3],
    pub dyn_cgroup_mem: u32,
}

const _: () = assert!(size_of::<OffloadEntry>() == 32 && size_of::<DeviceImage>() == 32 && size_of::<BinDesc>() == 32);
const _: () = assert!(size_of::<KernelArgs2>() == 104);
