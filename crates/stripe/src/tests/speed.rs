//! How fast parity is computed.
#![allow(clippy::disallowed_methods, reason = "it measures real time")]

use super::*;
use crate::parity::{parity_of, write_sum};
use std::{hint::black_box, time::Instant};

fn gigabytes_a_second(bytes: usize, mut work: impl FnMut()) -> f64 {
    let rounds = (1 << 30) / bytes;
    let best = (0..5).map(|_| {
        let begun = Instant::now();
        (0..rounds).for_each(|_| work());
        begun.elapsed().as_secs_f64()
    });
    (rounds * bytes) as f64 / best.fold(f64::MAX, f64::min) / 1e9
}

#[test]
#[ignore = "it prints figures: cargo test -p quoin-stripe speed -- --ignored --nocapture"]
fn speed_of_parity_in_gigabytes_of_data_a_second() {
    const STRIP_BYTES: usize = 64 << 10;
    for data in [2u8, 4, 8, 16, 23] {
        let row = usize::from(data) * STRIP_BYTES;
        let columns: Vec<_> = (0..u64::from(data)).map(|at| cut(&content(STRIP_BYTES, at), 8192)).collect();
        let geometry =
            |parity| Geometry { data, parity, strip_bytes: STRIP_BYTES as u32, row_bytes: row as u32 };
        let [p, p_and_q] = [1, 2].map(|parity| {
            gigabytes_a_second(row, || drop(black_box(parity_of(geometry(parity), black_box(&columns)))))
        });
        let whole: Vec<_> = columns.iter().map(|pieces| Slice::joined(pieces)).collect();
        let factors = |of: fn(usize) -> u8| -> Vec<_> {
            whole.iter().enumerate().map(|(at, column)| (&column[..], of(at))).collect()
        };
        let mut sum = Buf::zeroed(STRIP_BYTES);
        let [one, two] = [factors(|_| 1), factors(|at| (at * 37 + 91) as u8)].map(|terms| {
            gigabytes_a_second(row, || write_sum(black_box(&terms), black_box(sum.as_mut_slice())))
        });
        println!(
            "{data:2} columns of data: P {p:5.1}, P and Q {p_and_q:5.1}, one lost column {one:5.1}, with Q {two:5.1}"
        );
    }
}
