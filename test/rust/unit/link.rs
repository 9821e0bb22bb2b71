// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/link/mod.rs`.

use super::*;
use crate::base::sync::Mutex;
use crate::mpi::TAG_BULK;
use proptest::prelude::*;
use std::sync::Arc;

type Mail = Arc<Mutex<Vec<VecDeque<(usize, u32, Vec<u8>)>>>>;

/// Sender, tag, buffer and its size.
type Receive = (Option<usize>, u32, *mut u8, usize);

/// Ranks in one process: a send is done once it is copied.
struct Memory {
    rank: usize,
    mail: Mail,
    /// By request; `None` once it is done.
    receives: Vec<Option<Receive>>,
}

// SAFETY: only the owner of the transport uses the pointers, as with MPI.
unsafe impl Send for Memory {}

const SENT: u64 = u64::MAX;
/// A send to [`BUSY`], which is never done.
const STUCK: u64 = SENT - 1;
/// This rank takes nothing.
const BUSY: usize = 3;
/// Bytes of a piece of bulk data.
const FRAGMENT: usize = 1000;

impl Transport for Memory {
    unsafe fn send(&mut self, to: usize, tag: u32, data: *const u8, len: usize) -> Result<Request> {
        // SAFETY: the caller's promise.
        let bytes = unsafe { std::slice::from_raw_parts(data, len) }.to_vec();
        self.mail.lock()[to].push_back((self.rank, tag, bytes));
        Ok(Request(if to == BUSY { STUCK } else { SENT }))
    }
    unsafe fn receive(&mut self, from: Option<usize>, tag: u32, data: *mut u8, len: usize) -> Result<Request> {
        self.receives.push(Some((from, tag, data, len)));
        Ok(Request(self.receives.len() as u64 - 1))
    }
    unsafe fn test(&mut self, request: &mut Request) -> Result<Option<Received>> {
        if request.0 == STUCK {
            return Ok(None);
        }
        if request.0 == SENT {
            return Ok(Some(Received { from: self.rank, len: 0 }));
        }
        let slot = &mut self.receives[request.0 as usize];
        let (from, tag, data, len) = slot.expect("a request is tested until it is done");
        let mail = &mut self.mail.lock()[self.rank];
        let found = mail.iter().position(|(f, t, _)| *t == tag && from.is_none_or(|from| from == *f));
        let Some((from, _, bytes)) = found.and_then(|i| mail.remove(i)) else { return Ok(None) };
        assert!(bytes.len() <= len, "a message is longer than its receive");
        // SAFETY: the poster's promise.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), data, bytes.len()) };
        *slot = None;
        Ok(Some(Received { from, len: bytes.len() }))
    }
    unsafe fn cancel(&mut self, _: Request) {}
    fn finish(&mut self) {}
    fn abort(&mut self, code: i32) -> ! {
        panic!("aborted with {code}")
    }
}

/// All ranks are on nodes of their own.
fn links(ranks: usize, frame: usize) -> Vec<Link<()>> {
    let mail: Mail = Arc::new(Mutex::new(vec![VecDeque::new(); ranks]));
    let link = |rank| {
        let transport = Memory { rank, mail: mail.clone(), receives: Vec::new() };
        Link::new(Box::new(transport), FRAGMENT, Doorbells::default(), vec![Endpoint { frame, is_far: true }; ranks])
            .unwrap()
    };
    (0..ranks).map(link).collect()
}

proptest! {
    #[test]
    fn messages_of_any_length_arrive_whole_and_in_order(
        frame in 1usize..5000,
        lens in prop::collection::vec((0usize..2, prop_oneof![0usize..ROOM.min(20_000), Just(5000), 4990usize..5010]), 1..40)
    ) {
        let links = links(3, frame.max(500));
        let content = |i: usize, len: usize| vec![i as u8; len];
        for (i, &(from, len)) in lens.iter().enumerate() {
            links[from].send(2, content(i, len)).unwrap();
        }
        let mut got = [Vec::new(), Vec::new()];
        let mut inbox = Inbox::default();
        while links[2].drive(&mut inbox).unwrap() == Progress::Made {
            inbox.take_message().into_iter().for_each(|(from, bytes)| got[from].push(bytes));
        }
        for (from, got) in got.into_iter().enumerate() {
            let sent = lens.iter().enumerate().filter(|(_, l)| l.0 == from).map(|(i, l)| content(i, l.1));
            prop_assert!(got.into_iter().eq(sent));
        }
        links[2].drive(&mut inbox).unwrap();
        prop_assert_eq!(links[2].state.lock().posted.len(), POSTED);
    }

    #[test]
    fn bulk_data_goes_in_pieces(len in 1usize..20_000) {
        let links = links(2, 4000);
        let from: Vec<u8> = (0..len).map(|i| (i * 7) as u8).collect();
        let mut to = vec![0u8; len];
        // SAFETY: both outlive the transfer, which ends below.
        let (out, room) = unsafe { (Span::new(from.as_ptr().cast_mut(), len), Span::new(to.as_mut_ptr(), len)) };
        let tag = TAG_BULK + 9;
        match len % 2 {
            0 => links[1].receive_bulk(Peer { rank: 0, tag }, room, ()).unwrap(),
            _ => links[1].receive_bulk_later(Peer { rank: 0, tag }, room, ()),
        }
        prop_assert!(links[1].has_bulk() && !links[1].is_flushed());
        let mut inbox = Inbox::default();
        (0..2).for_each(|_| { links[1].drive(&mut inbox).unwrap(); });
        let in_flight = far_patience(len.min(WINDOW * FRAGMENT));
        prop_assert_eq!(links[1].bulk_patience(), Some(BULK_PATIENCE + in_flight));
        links[0].send_bulk(Peer { rank: 1, tag }, out, ()).unwrap();
        while inbox.completed.len() < 2 {
            links.iter().for_each(|link| { link.drive(&mut inbox).unwrap(); });
        }
        prop_assert!(inbox.completed.iter().all(|(_, result)| result.is_ok()));
        prop_assert!(links[1].is_flushed());
        for link in &links {
            prop_assert_eq!((link.bulk_patience(), link.far_bytes.load(Relaxed)), (None, 0));
        }
        prop_assert_eq!(from, to);
    }
}

#[test]
fn a_busy_rank_does_not_delay_others() {
    let links = links(BUSY + 1, 4000);
    let mut inbox = Inbox::default();
    for to in [BUSY, 1, BUSY, 2] {
        links[0].send(to, vec![7; 7000]).unwrap();
    }
    for _ in 0..3 {
        links[0].drive(&mut inbox).unwrap();
    }
    assert_eq!([1, 2, BUSY].map(|rank| links[0].is_sent(rank)), [true, true, false]);
    assert!(!links[0].is_flushed() && !links[0].has_fewer_unsent(4) && links[0].has_fewer_unsent(5));
}

#[test]
fn a_rank_copies_by_a_message_to_itself() {
    let links = links(2, 4000);
    let copy = |from: &mut [u8], to: &mut [u8], rank| {
        // SAFETY: this transport copies within the call, or not at all.
        let [to, from] = [to, from].map(|s| unsafe { Span::new(s.as_mut_ptr(), s.len()) });
        links[0].copy(Peer { rank, tag: TAG_BULK }, to, from, Duration::from_millis(20))
    };
    let (mut from, mut to) = ([7; 5000], [0; 5000]);
    assert_eq!(copy(&mut from, &mut to, 0), Ok(true));
    assert_eq!(from, to);
    // What rank 1 would have to send.
    assert_eq!(copy(&mut from, &mut to, 1), Ok(false));
    assert_eq!(links[0].drive(&mut Inbox::default()), Ok(Progress::None));
    links[0].leave(Duration::ZERO);
    assert_eq!(copy(&mut from, &mut to, 0), Err(Error::Closed));
}
