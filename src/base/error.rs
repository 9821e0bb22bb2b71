// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The one error type: a line for the person who reads it.

use std::fmt;

/// Why something failed, in words meant for the user: what, where, why, what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// Not told to the user yet.
    Text(String),
    /// A consequence of something that was already told (a device that is lost).
    Told,
}

/// `std::result::Result` with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error with this text.
    pub fn new(text: impl Into<String>) -> Self {
        Error::Text(text.into())
    }

    /// The same error with `what` put in front: "what: text".
    pub fn context(self, what: impl fmt::Display) -> Self {
        match self {
            Error::Text(text) => Error::Text(format!("{what}: {text}")),
            Error::Told => Error::Told,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Text(text) => f.write_str(text),
            Error::Told => f.write_str("failed before"),
        }
    }
}

impl From<std::io::Error> for Error {
    fn from(e: std::io::Error) -> Self {
        Error::new(e.to_string())
    }
}
