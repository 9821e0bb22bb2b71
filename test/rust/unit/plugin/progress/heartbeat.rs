// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/plugin/progress/heartbeat.rs`.

use super::*;

const LIMIT: Duration = Duration::from_secs(1);

fn checks(silence: &mut Silence, heard: Option<u64>, n: usize) -> Vec<Action> {
    (0..n).map(|_| silence.check(heard, || false, INTERVAL, LIMIT)).filter(|a| *a != Action::None).collect()
}

#[test]
fn a_device_that_answers_when_asked_is_fine_for_ever() {
    let mut silence = Silence::default();
    for heard in 1..100 {
        assert_eq!(checks(&mut silence, Some(heard), 5), [Action::Ask]);
    }
}

#[test]
fn a_device_that_does_not_answer_is_lost() {
    let mut silence = Silence::default();
    assert_eq!(checks(&mut silence, Some(7), 9), [Action::Ask, Action::GiveUp(2 * LIMIT)]);
}

#[test]
fn a_device_that_has_ended_is_lost_once_nothing_more_arrives() {
    let mut silence = Silence { heard: 7, ..Silence::default() };
    let mut check = |heard| silence.check(Some(heard), || true, INTERVAL, Duration::ZERO);
    let actions: Vec<Action> = [7, 7, 8, 8, 8, 8, 8].map(&mut check).into();
    assert!(actions[..6].iter().all(|a| *a == Action::None), "{actions:?}");
    assert_eq!(actions[6], Action::End);
}

#[test]
fn a_device_that_owes_no_answer_is_not_asked() {
    let mut silence = Silence::default();
    assert_eq!(checks(&mut silence, None, 100), []);
    assert_eq!(checks(&mut silence, Some(7), 4), []);
    assert_eq!(checks(&mut silence, None, 1), []);
    assert_eq!(checks(&mut silence, Some(7), 4), []);
}

#[test]
fn a_pause_of_the_program_is_no_silence() {
    // Two checks count for at most 1 s, however long they take; at least 1.25 s pass.
    let heartbeat = Heartbeat::new(1, Duration::from_millis(1100));
    for (round, pause) in [Duration::ZERO, INTERVAL, INTERVAL * 4].into_iter().enumerate() {
        std::thread::sleep(pause);
        let act = |_, action| assert_eq!(action, Action::None, "at a check behind a pause");
        heartbeat.check_all(round as u64 + 1, |_| Some(0), |_| false, act);
    }
}
