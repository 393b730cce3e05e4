//! How fast parity is computed.
#![allow(clippy::disallowed_methods, reason = "it measures real time")]

use super::*;
use crate::parity::{parity_of, write_sum};
use std::{hint::black_box, time::Instant};

const STRIP_BYTES: usize = 64 << 10;

/// Of work that goes through `bytes` of data.
fn gigabytes_a_second(bytes: usize, mut work: impl FnMut(usize)) -> f64 {
    let rounds = (1 << 30) / bytes;
    let best = (0..5).map(|_| {
        let begun = Instant::now();
        (0..rounds).for_each(&mut work);
        begun.elapsed().as_secs_f64()
    });
    (rounds * bytes) as f64 / best.fold(f64::MAX, f64::min) / 1e9
}

/// So many rows of columns, in slices of pool blocks.
fn rows(count: usize, data: u8) -> Vec<Vec<Vec<Slice>>> {
    let column = |at: usize| cut(&content(STRIP_BYTES, at as u64), 8192);
    (0..count).map(|row| (0..data.into()).map(|at| column(row * 64 + at)).collect()).collect()
}

#[test]
#[ignore = "it prints figures: cargo test -p quoin-stripe speed -- --ignored --nocapture"]
fn speed_of_parity_in_gigabytes_of_data_a_second() {
    for data in [2u8, 4, 8, 16, 23] {
        let row_bytes = usize::from(data) * STRIP_BYTES;
        let layout = |parity| {
            let row_bytes = row_bytes as u32;
            Geometry { data, parity, strip_bytes: STRIP_BYTES as u32, row_bytes }
        };
        // The same row again and again, and rows that together are larger than any cache.
        for (place, rows) in [("cached", rows(1, data)), ("memory", rows((512 << 20) / row_bytes, data))] {
            let [p, p_and_q] = [1, 2].map(|parity| {
                gigabytes_a_second(row_bytes, |at| {
                    drop(black_box(parity_of(layout(parity), black_box(&rows[at % rows.len()]))));
                })
            });
            println!("{place} {data:2}: P {p:5.1}, P and Q {p_and_q:5.1}");
        }
        let columns: Vec<_> = rows(1, data)[0].iter().map(|pieces| Slice::joined(pieces)).collect();
        let mut sum = Buf::zeroed(STRIP_BYTES);
        let [one, two] = [|_| 1, |at: usize| (at * 37 + 91) as u8].map(|factor: fn(usize) -> u8| {
            let terms = columns.iter().enumerate().map(|(at, column)| (&column[..], factor(at)));
            let terms: Vec<_> = terms.collect();
            gigabytes_a_second(row_bytes, |_| write_sum(black_box(&terms), black_box(sum.as_mut_slice())))
        });
        println!("cached {data:2}: a lost column by P {one:5.1}, by Q or both {two:5.1}");
    }
}
