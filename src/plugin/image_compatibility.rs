// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Which images of the program this process's devices can execute.

use super::lifecycle;
use crate::base::target::{self, Target};
use crate::base::{Error, Result, elf, log};
use crate::debug;
use crate::sys::node;
use crate::sys::process::Mappings;
use std::ops::Range;
use std::sync::Once;

/// The first bytes at these addresses, or `None` if nothing there is readable.
pub(crate) fn head(place: &Range<usize>) -> Result<Option<Vec<u8>>> {
    let mut head = vec![0; elf::HEADER.min(place.len())];
    // SAFETY: `head` has this length.
    let n = unsafe { node::read_any(place.start as u64, head.as_mut_ptr(), head.len()) };
    if n == head.len() as isize {
        return Ok(Some(head));
    }
    let e = std::io::Error::last_os_error();
    if n >= 0 || e.raw_os_error() == Some(libc::EFAULT) {
        return Ok(None);
    }
    Err(Error::from(e).context("an image can't be read (process_vm_readv); allow that call here"))
}

/// True if the image mapped at `place`, with these first bytes, is for that device or, with `None`, for any device.
pub(crate) fn is_for(place: &Range<usize>, head: &[u8], device: Option<usize>) -> bool {
    let accelerators = lifecycle::accelerators();
    // Without accelerators, all devices have the program's ELF machine.
    let checked = match &accelerators {
        Some(all) => check_any(device.and_then(|device| all.get(device..=device)).unwrap_or(all), place, head),
        None => elf::check(head, elf::MACHINE),
    };
    let Err(e) = checked else { return true };
    debug!("an image is not for MPI devices: {e}");
    if is_for_accelerators(head) && accelerators.is_none() {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            log::warning(
                "the program has an image for an accelerator, which its MPI devices do not use: a local accelerator \
                 may execute it, see OMPTARGET_MPI_BACKEND",
            );
        });
    }
    false
}

/// The target of the image at these addresses, with these first bytes.
fn target_of(place: &Range<usize>, head: &[u8]) -> Result<Target> {
    if !target::is_bitcode(head) {
        return Target::of_image(head);
    }
    let mut bytes = vec![0; place.len()];
    // SAFETY: `bytes` has this length.
    let n = unsafe { node::read_any(place.start as u64, bytes.as_mut_ptr(), bytes.len()) };
    bytes.truncate(n.max(0) as usize);
    Target::of_image(&bytes)
}

/// Fails unless one of these targets executes the image mapped at `place`, with these first bytes. If no image in the
/// same file is for them, succeeds all the same: the devices then report why they refuse it.
fn check_any(targets: &[Target], place: &Range<usize>, head: &[u8]) -> Result<()> {
    let image = target_of(place, head).inspect_err(|e| {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            log::warning(format_args!(
                "accelerators can't execute an image of the program ({e}): compile it to machine code"
            ))
        });
    })?;
    let fits = |image| targets.iter().any(|target| target.check(image).is_ok());
    if targets.is_empty() || fits(image) {
        return Ok(());
    }
    let file = Mappings::now().file_at(place.start).and_then(|path| elf::map(&path).ok());
    match file.is_some_and(|file| target::images_in(&file).any(fits)) {
        true => Err(Error::new(format!("it is for {image}, and another one for these"))),
        false => Ok(()),
    }
}

fn is_for_accelerators(head: &[u8]) -> bool {
    elf::ACCELERATORS.iter().any(|&machine| elf::check_machine(head, machine).is_ok())
}

#[cfg(test)]
#[path = "../../test/rust/unit/plugin/image_compatibility.rs"]
mod tests;
