// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Device images and the libraries that they need, from their arrival until they are loaded.
//!
//! - `library`: loads a library permanently, after the libraries that it needs.
//! - `loader`: loads one image or library at a time, and keeps images that are not loaded yet.
//! - `pending_image`: the file in memory that an arriving image fills.

pub(super) mod library;
pub(super) mod loader;
pub(super) mod pending_image;
