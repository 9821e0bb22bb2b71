// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/wire/mod.rs`.

use proptest::prelude::*;

proptest! {
    #[test]
    fn any_bytes_are_safe_to_read(bytes in prop::collection::vec(any::<u8>(), 0..super::hello::HELLO_LEN)) {
        if let Ok((_, mut rest)) = super::command::Commands::open(&bytes) {
            while let Ok(Some(_)) = rest.take() {}
        }
        let mut rest = super::record::Records(&bytes);
        while let Ok(Some(_)) = rest.take() {}
        let _ = super::reply::Reply::parse(&bytes);
        for bytes in [&bytes, &[&super::hello::MAGIC[..], &bytes].concat()] {
            let _ = super::hello::Hello::decode(bytes);
        }
    }
}
