//! The history of the pool's space: sampled every hour, kept over restarts, and what it foretells.

use crate::{
    lab::Lab,
    years::{Ending, Years},
};
use quoin_array::HISTORY_OBJECT;
use quoin_pool::Transaction;
use serde_json::json;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const HOUR: Duration = Duration::from_secs(3600);
const MIB: u64 = 1 << 20;

#[test]
fn the_space_is_sampled_every_hour_and_the_growth_tells_when_it_is_used_up() {
    let years = Years::new(1);
    let free_bytes = years.boot(Ending::Stop, async |day| {
        let array = &day.array;
        let thick = |name: &str| {
            serde_json::from_value(json!({ "name": name, "size_bytes": MIB, "thick": true })).unwrap()
        };
        day.pass(HOUR / 2).await;
        let before = array.space_forecast().unwrap();
        assert_eq!((before.growth_bytes_day, before.full_in_s), (None, None));
        for hour in 0..48 {
            array.create_volume(thick(&format!("v{hour}"))).await.unwrap();
            day.pass(HOUR).await;
        }
        let samples = array.space_history(0, true).unwrap();
        assert!((48..=50).contains(&samples.len()), "{}", samples.len());
        assert!(samples.array_windows().all(|[a, b]| a.at_ms < b.at_ms && a.used_bytes() <= b.used_bytes()));
        let daily = array.space_history(0, false).unwrap();
        assert!((2..=4).contains(&daily.len()) && daily.last() == samples.last());
        assert_eq!(array.space_history(samples[40].at_ms, true).unwrap(), samples[40..]);
        let space = array.pool_space().unwrap();
        let (first, last) = (&samples[0], &samples[samples.len() - 1]);
        let days = (last.at_ms - first.at_ms) as f64 / 86_400_000.0;
        let grew = (last.used_bytes() - first.used_bytes()) as f64 / days;
        let forecast = array.space_forecast().unwrap();
        let growth = forecast.growth_bytes_day.unwrap();
        assert!(growth >= (23 * MIB) as f64 && (growth / grew - 1.0).abs() < 0.05, "{growth} {grew}");
        let (full_in_days, left) =
            (forecast.full_in_s.unwrap() as f64 / 86_400.0, space.free_bytes as f64 / grew);
        assert!((full_in_days / left - 1.0).abs() < 0.05, "{full_in_days} {left}");
        space.free_bytes
    });
    // It is as it was after a crash, and goes on.
    for ending in [Ending::Kill, Ending::Stop] {
        years.boot(ending, async move |day| {
            day.pass(2 * HOUR).await;
            let samples = day.array.space_history(0, true).unwrap();
            assert!(samples.len() >= 50 && samples.last().unwrap().free_bytes == free_bytes, "{samples:?}");
        });
    }
}

#[test]
fn a_sample_that_cannot_be_read_hinders_nothing() {
    let lab = Lab::new();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let hour = now.as_secs() / 3600 - 50 * 24;
    lab.with_pool(async move |pool| {
        let old = json!({
            "version": 1, "at_ms": hour * 3_600_000 + 1, "provisioned_bytes": 7, "written_bytes": 0, "unique_bytes": 0,
            "physical_bytes": 0, "metadata_bytes": 0, "usable_bytes": 9, "free_bytes": 9,
        });
        let tx = Transaction::new().put(HISTORY_OBJECT, &hour.to_string(), old.to_string().into_bytes());
        pool.commit(tx.put(HISTORY_OBJECT, "6", b"nonsense".to_vec())).await.unwrap();
    });
    let array = lab.start();
    let samples = || array.space_history(0, true).unwrap();
    lab.until(|| samples().len() == 2);
    assert_eq!((samples()[0].at_ms, samples()[0].provisioned_bytes), (hour * 3_600_000 + 1, 7));
    array.space_forecast().unwrap();
    lab.stop(array);
}
