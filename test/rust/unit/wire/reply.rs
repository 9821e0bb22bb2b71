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

    #[test]
    fn changes_and_questions_are_read(
        seq: u64, at: u64, len: u64,
        all in prop::collection::vec((any::<u64>(), prop::collection::vec(any::<(u8, u8)>(), 0..50)), 0..9),
        cut in 1usize..20,
    ) {
        let mut out = Vec::new();
        begin_changed(&mut out, seq);
        let mut written = Vec::new();
        for (at, bytes) in all {
            let (new, old): (Vec<u8>, Vec<u8>) = bytes.into_iter().unzip();
            let before = out.len();
            Changes::push(&mut out, at, &new, &old);
            prop_assert_eq!(out.len() - before, Changes::HEAD + 2 * new.len());
            written.push((at, new, old));
        }
        let Ok(Reply::Changed { seq: read, mut changes }) = Reply::parse(&out) else { panic!("{out:?}") };
        prop_assert_eq!(read, seq);
        for (at, new, old) in &written {
            prop_assert_eq!(changes.take().unwrap(), Some((*at, &new[..], &old[..])));
        }
        prop_assert_eq!(changes.take().unwrap(), None);
        // A message that ends within a change is refused before any of it is used.
        if written.last().is_some_and(|(_, new, _)| cut < Changes::HEAD + 2 * new.len()) {
            prop_assert!(Reply::parse(&out[..out.len() - cut]).is_err());
        }
        Reply::Fetch { at, len, known: Known(&[]) }.write(&mut out);
        prop_assert_eq!(Reply::parse(&out).unwrap(), Reply::Fetch { at, len, known: Known(&[]) });
        let (new, old) = (at.to_ne_bytes(), SharedFile { pid: 1, descriptor: 2, nonce: at, len });
        let there = Reply::ChangedThere { seq, at, len: 8, new: new.as_ptr() as u64, old };
        there.write(&mut out);
        prop_assert_eq!(Reply::parse(&out).unwrap(), there);
        let (wanted, blocks) = (1 + len as u32 % MEMORY_PIECE as u32, 1 + (len as u32 % MEMORY_PIECE as u32) as usize / BLOCK);
        let digests: Vec<u128> = (0..blocks as u128).map(|n| n << 64 | u128::from(at)).collect();
        let mut list = Vec::new();
        digests.iter().for_each(|&digest| Digests::push(&mut list, digest));
        Reply::ChangedAside { seq, at, len: wanted, old: Digests(&list) }.write(&mut out);
        let Ok(Reply::ChangedAside { seq: read, at: read_at, len: read_len, old }) = Reply::parse(&out) else {
            panic!("{out:?}")
        };
        prop_assert_eq!((read, read_at, read_len), (seq, at, wanted));
        prop_assert!(old.iter().eq(digests));
        // One digest too few, or too many bytes.
        prop_assert!(Reply::parse(&out[..out.len() - 16]).is_err());
        Reply::ChangedAside { seq, at, len: wanted + BLOCK as u32, old: Digests(&list) }.write(&mut out);
        prop_assert!(Reply::parse(&out).is_err());
        Reply::Find { at }.write(&mut out);
        prop_assert_eq!(Reply::parse(&out).unwrap(), Reply::Find { at });
    }

    #[test]
    fn what_a_device_knows_ascends(
        at: u64, len: u64, parts in prop::collection::vec((0..4u64, 1..17u32, any::<u128>()), 0..20), cut in 1..28usize,
    ) {
        let (mut list, mut written, mut free) = (Vec::new(), Vec::new(), 0);
        for (gap, pages, digest) in parts {
            let part = (4096 * (free + gap), 4096 * pages, digest);
            free += gap + u64::from(pages);
            Known::push(&mut list, part);
            written.push(part);
        }
        let mut out = Vec::new();
        Reply::Fetch { at, len, known: Known(&list) }.write(&mut out);
        let Ok(Reply::Fetch { known, .. }) = Reply::parse(&out) else { panic!("{out:?}") };
        let (mut rest, mut read) = (known, Vec::new());
        while let Some(part) = rest.take().unwrap() {
            read.push(part);
        }
        prop_assert_eq!(&read, &written);
        if let Some(&(at, len, digest)) = written.last() {
            prop_assert!(Reply::parse(&out[..out.len() - cut]).is_err());
            // Another part that begins before the last one ends, and such as are no pages.
            let end = at + u64::from(len);
            let wrong = [(end - 4096, 4096), (end + 1, 4096), (end, 4095), (end, 0), (end, 68 << 10), (u64::MAX - 4095, 4096)];
            for (at, len) in wrong {
                let before = list.len();
                Known::push(&mut list, (at, len, digest));
                Reply::Fetch { at, len: 4096, known: Known(&list) }.write(&mut out);
                prop_assert!(Reply::parse(&out).is_err(), "{at:#x}, {len}");
                list.truncate(before);
            }
        }
    }
}
