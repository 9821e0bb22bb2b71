// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/wire/mod.rs`.

use proptest::prelude::*;

proptest! {
    #[test]
    fn any_bytes_are_safe_to_read(bytes in prop::collection::vec(any::<u8>(), 0..super::hello::HELLO_LEN)) {
        if let Ok((_, rest)) = super::command::Operations::open(&bytes) {
            let mut commands = rest.clone();
            while let Ok(Some(_)) = commands.take::<super::command::Command<'_>>() {}
            let mut operations = rest;
            while let Ok(Some(_)) = operations.take::<super::control::Control<'_>>() {}
        }
        let mut rest = super::record::Records(&bytes);
        while let Ok(Some(_)) = rest.take() {}
        let _ = super::reply::Reply::parse(&bytes);
        for bytes in [&bytes, &[&super::hello::MAGIC[..], &bytes].concat()] {
            let _ = super::hello::Hello::decode(bytes);
        }
    }
}
