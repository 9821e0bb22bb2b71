// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The error type: a line for the user.

use std::fmt;

/// `std::result::Result` with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Why something failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A message that the user has not seen yet: what failed, where, why, what to do.
    #[error("{0}")]
    Text(String),
    /// A consequence of a failure that was already reported, for example the loss of a device. Not for "no" and "not
    /// here": these are results.
    #[error("failed before")]
    Reported,
    /// The other end closed a socket, or this process closed the link because it is about to exit.
    #[error("the connection is closed")]
    Closed,
}

impl Error {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Error::Text(text.into())
    }

    /// Puts `what` in front of the text: "what: text".
    pub(crate) fn context(self, what: impl fmt::Display) -> Self {
        match self {
            Error::Text(text) => Error::Text(format!("{what}: {text}")),
            other => other,
        }
    }
}

impl From<rustix::io::Errno> for Error {
    fn from(e: rustix::io::Errno) -> Self {
        std::io::Error::from(e).into()
    }
}

impl From<std::io::Error> for Error {
    fn from(e: std::io::Error) -> Self {
        Error::new(e.to_string())
    }
}
