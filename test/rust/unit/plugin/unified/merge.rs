// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/plugin/unified/merge.rs`.

use super::*;
