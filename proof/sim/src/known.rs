//! The known seeds of planted bugs: a text file in the source tree with a bug and a seed in each line.

use crate::search::Answer;
use anyhow::{Context, Result};
use std::{
    collections::BTreeMap,
    io::ErrorKind,
    path::{Path, PathBuf},
};

const HEAD: &str = "\
# For each planted bug a seed with which the simulation finds it, tried before a search. `bugs --record` writes this file.
";

/// A seed for each bug that was found.
#[derive(Debug)]
pub(crate) struct KnownSeeds {
    path: PathBuf,
    seeds: BTreeMap<String, u64>,
}

impl KnownSeeds {
    /// Reads the file. Without one, nothing is known.
    pub(crate) fn read(path: &Path) -> Result<KnownSeeds> {
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            text => text.with_context(|| format!("reading {}", path.display()))?,
        };
        let known = KnownSeeds::parse(&text).with_context(|| path.display().to_string())?;
        Ok(KnownSeeds { path: path.to_owned(), ..known })
    }

    /// The seeds that a text says.
    pub(crate) fn parse(text: &str) -> Result<KnownSeeds> {
        let lines = text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let seeds = lines.map(|(number, line)| {
            let seed = line
                .split_once(' ')
                .and_then(|(name, seed)| Some((name.to_owned(), seed.trim().parse().ok()?)));
            seed.with_context(|| format!("line {}: expected a bug and a seed, found `{line}`", number + 1))
        });
        Ok(KnownSeeds { path: PathBuf::new(), seeds: seeds.collect::<Result<_>>()? })
    }

    /// The known seed of a bug.
    pub(crate) fn of(&self, name: &str) -> Option<u64> {
        self.seeds.get(name).copied()
    }

    /// What the file should say differently, after these answers; `names` are those of all bugs.
    pub(crate) fn out_of_date(&self, answers: &[Answer], names: &[String]) -> Vec<String> {
        let told = |seed: Option<u64>| seed.map_or("none".to_owned(), |seed| seed.to_string());
        let changed = answers.iter().filter_map(|answer| {
            let (was, is) = (self.of(&answer.name), answer.find.as_ref().map(|find| find.seed));
            (was != is).then(|| format!("{}: was {}, is {}", answer.name, told(was), told(is)))
        });
        let gone = self.seeds.keys().filter(|name| !names.contains(name));
        changed.chain(gone.map(|name| format!("{name}: no such bug"))).collect()
    }

    /// Writes the file anew with what these answers say, and with what it said of other bugs.
    pub(crate) fn record(&mut self, answers: &[Answer], names: &[String]) -> Result<()> {
        self.update(answers, names);
        std::fs::write(&self.path, self.text()).with_context(|| format!("writing {}", self.path.display()))
    }

    fn update(&mut self, answers: &[Answer], names: &[String]) {
        self.seeds.retain(|name, _| names.contains(name));
        for answer in answers {
            match &answer.find {
                Some(find) => self.seeds.insert(answer.name.clone(), find.seed),
                None => self.seeds.remove(&answer.name),
            };
        }
    }

    fn text(&self) -> String {
        let lines = self.seeds.iter().map(|(name, seed)| format!("{name} {seed}\n"));
        HEAD.to_owned() + &lines.collect::<String>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::{Answer, Find};

    fn answer(name: &str, seed: Option<u64>) -> Answer {
        let find = seed.map(|seed| Find { seed, violation: String::new(), is_known: false });
        Answer { name: name.to_owned(), within: 100, find }
    }

    #[test]
    fn what_an_answer_changes_is_told_and_recorded() {
        let mut known =
            KnownSeeds::parse("# a head\n\nSame 1\nMoved 2\nMissed 3\nNotLookedFor 4\nGone 5\n").unwrap();
        let names = ["Same", "Moved", "Missed", "NotLookedFor", "New"].map(str::to_owned);
        let answers = [
            answer("Same", Some(1)),
            answer("Moved", Some(20)),
            answer("Missed", None),
            answer("New", Some(6)),
        ];
        let told =
            ["Moved: was 2, is 20", "Missed: was 3, is none", "New: was none, is 6", "Gone: no such bug"];
        assert_eq!(known.out_of_date(&answers, &names), told);
        known.update(&answers, &names);
        assert_eq!(known.text(), format!("{HEAD}Moved 20\nNew 6\nNotLookedFor 4\nSame 1\n"));
        let again = KnownSeeds::parse(&known.text()).unwrap();
        assert_eq!(again.seeds, known.seeds);
        assert!(again.out_of_date(&answers, &names).is_empty());
    }

    #[test]
    fn a_line_that_is_no_bug_with_a_seed_is_named() {
        for line in ["<<<<<<< HEAD", "ZeroFill", "ZeroFill x", "ZeroFill -1", "ZeroFill 1 2"] {
            let error = KnownSeeds::parse(&format!("SkipRowFlush 1\n{line}\n")).unwrap_err().to_string();
            assert!(error.contains("line 2") && error.contains(line), "{error}");
        }
    }

    #[test]
    fn without_a_file_nothing_is_known() {
        let known = KnownSeeds::read(Path::new("no/such/file")).unwrap();
        assert_eq!(known.of("ZeroFill"), None);
    }
}
