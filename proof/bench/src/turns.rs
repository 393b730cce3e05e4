//! Figures of things that took turns: medians, and how they compare with the first in the same round.

use crate::markdown::{finish, table};
use crate::stats::median;

/// A figure of a turn.
pub(crate) struct Column<T> {
    pub(crate) name: &'static str,
    pub(crate) of: fn(&T) -> f64,
}

/// A line for each thing, which `head` names; in brackets the median ratio to the first one in the same round.
pub(crate) fn compared<T>(head: &str, columns: &[Column<T>], all: &[(&str, &[T])]) -> String {
    let header: Vec<&str> = [head].into_iter().chain(columns.iter().map(|column| column.name)).collect();
    let mut rows = table(&header);
    for (name, turns) in all {
        let mut row = vec![(*name).to_owned()];
        for Column { of, .. } in columns {
            let middle = median(turns.iter().map(of));
            let ratios = turns.iter().zip(all[0].1).filter(|(_, first)| of(first) > 0.0);
            let ratio = median(ratios.map(|(turn, first)| of(turn) / of(first)));
            let digits = usize::from(middle < 100.0);
            row.push(format!("{middle:.digits$} ({ratio:.2})"));
        }
        rows.add_row(row);
    }
    finish(rows, &[0]).to_string()
}
