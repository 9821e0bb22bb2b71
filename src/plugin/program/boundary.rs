// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The boundary between C and Rust: no panic and no error reaches C.

use super::ending;
use crate::base::{Error, Result, log};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Makes a call for C. If the call panics or fails, reports that and returns `failure`; while another thread ends the
/// process, a failed call is held.
#[inline]
pub(crate) fn guard<R>(operation: &str, failure: R, call: impl FnOnce() -> Result<R>) -> R {
    let called = ending::call(|| {
        let called = catch_unwind(AssertUnwindSafe(call));
        if !matches!(called, Ok(Ok(_))) && ending::has_begun() {
            // libomptarget would abort the process, which would lose its status. This thread holds no lock of the
            // plugin that process exit may need.
            ending::hold();
        }
        called
    });
    let Some(called) = called else {
        report_interruption(operation);
        return failure;
    };
    match called {
        Ok(Ok(result)) => result,
        Ok(Err(Error::Reported | Error::Closed)) => failure,
        Ok(Err(Error::Text(text))) => {
            log::error(format_args!("{operation}: {text}"));
            failure
        }
        Err(_) => {
            log::error(format_args!("{operation}: internal error, see above"));
            failure
        }
    }
}

/// Turns a panic, which has been reported, into an error.
pub(crate) fn catch<R>(call: impl FnOnce() -> Result<R>) -> Result<R> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| Err(Error::new("internal error, see above")))
}

#[cold]
#[inline(never)]
fn report_interruption(operation: &str) {
    if crate::mpi::is_aborting() {
        // The reason was reported.
        return;
    }
    log::error(format_args!(
        "{operation}: a signal handler, or an exit handler that it runs, uses a device while its thread is in the \
         midst of another use"
    ));
}
