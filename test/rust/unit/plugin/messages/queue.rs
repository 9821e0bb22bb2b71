// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/plugin/messages/queue.rs`.

use super::*;

#[test]
fn a_destroyed_event_is_complete_and_stays_in_memory() {
    let event = Event::create();
    let address = Arc::as_ptr(&event);
    *event.position.lock() = Position::Sent(QueueMessage { id: MessageId { port: 0, seq: 1 }, queue: 1 });
    event.destroy();
    // SAFETY: what this test is about: an event's memory is never freed.
    let position = unsafe { &*address }.position.lock().clone();
    assert!(matches!(position, Position::Complete));
}
