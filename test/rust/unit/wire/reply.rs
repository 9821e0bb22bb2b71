// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/wire/reply.rs`.

use super::*;
use proptest::prelude::*;

proptest! {
    #[test]
    fn what_is_written_is_read(seq: u64, bytes in prop::collection::vec(any::<u8>(), 0..200),
                               lost: bool, kernel: u64, signal: u32, address: u64, text in ".{0,80}") {
        let mut out = Vec::new();
        begin_done(&mut out, seq);
        prop_assert_eq!(out.len(), DONE_LEN);
        out.extend_from_slice(&bytes);
        prop_assert_eq!(Reply::parse(&out).unwrap(), Reply::Done { seq, bytes: &bytes });
        let failure = Failure { lost, kernel, signal, address, text };
        failed(&mut out, seq, &failure);
        prop_assert_eq!(Reply::parse(&out).unwrap(), Reply::Failed { seq, failure });
        begin_output(&mut out, Stream::Err);
        prop_assert_eq!(out.len(), OUTPUT_LEN);
        out.extend_from_slice(&bytes);
        prop_assert_eq!(Reply::parse(&out).unwrap(), Reply::Output { stream: Stream::Err, bytes: &bytes });
        begin_records(&mut out);
        out.extend_from_slice(&bytes);
        prop_assert_eq!(Reply::parse(&out).unwrap(), Reply::Records(Records(&bytes)));
    }
}
