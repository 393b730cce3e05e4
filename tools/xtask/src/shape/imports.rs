//! Which files use which others, and how large the loops are.
//!
//! A file uses another one if it names something that the other defines: in a `use`, or by a path that begins with `crate`
//! or `super`. What a file only hands on (`pub use`) is looked for where it is defined, and handing it on is no use of it.

use super::{
    Figure,
    source::{Source, is_for_tests},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};
use syn::{
    UseTree, Visibility,
    visit::{self, Visit},
};

/// Files that use each other in a loop and are more than these have no order in which to be read.
const LOOP_FILES_MAX: usize = 3;
/// How often a name is handed on at most before it is taken to be defined where it was last.
const HANDS_MAX: usize = 8;

type Path = Vec<String>;

pub(super) fn figures(sources: &[Source]) -> Vec<Figure> {
    let mut packages: BTreeMap<&PathBuf, Vec<&Source>> = BTreeMap::new();
    for source in sources {
        packages.entry(&source.package).or_default().push(source);
    }
    let mut loops: Vec<Loop> = packages.values().flat_map(|of| loops(of)).collect();
    loops.sort_by_key(|of| std::cmp::Reverse(of.files.len()));
    let largest = loops.first().map_or(1, |of| of.files.len());
    let told = |of: &Loop| format!("{}: {}", of.files.len(), of.files.join(", "));
    loops.retain(|of| of.files.len() > LOOP_FILES_MAX);
    let places = loops.iter().map(told).collect();
    let ties = loops.into_iter().flat_map(|of| of.ties).collect();
    vec![
        Figure { name: "files-in-the-largest-import-loop", value: largest as f64, places: ties },
        Figure::count("import-loops-of-over-3-files", places),
    ]
}

/// Files that use each other, directly or through others.
struct Loop {
    files: Vec<String>,
    /// Which of them uses which other one, and by what names.
    ties: Vec<String>,
}

/// What a file names and hands on.
#[derive(Default)]
struct Names {
    used: Vec<Path>,
    handed_on: BTreeMap<String, Path>,
}

struct Collect {
    module: Path,
    names: Names,
}

impl Collect {
    /// A path from the root of the crate, if it leads anywhere within it.
    fn absolute(&self, path: &[String]) -> Option<Path> {
        let mut from = self.module.clone();
        let mut rest = path;
        match rest.first()?.as_str() {
            "crate" => {
                from.clear();
                rest = &rest[1..];
            }
            "self" => rest = &rest[1..],
            "super" => {
                while rest.first().is_some_and(|part| part == "super") {
                    from.pop()?;
                    rest = &rest[1..];
                }
            }
            // Either a module below or another crate; which, is seen when it is looked up.
            _ => {}
        }
        from.extend_from_slice(rest);
        Some(from)
    }

    fn tree(&mut self, before: &Path, tree: &UseTree, is_handed_on: bool) {
        match tree {
            UseTree::Path(path) => {
                let mut before = before.clone();
                before.push(path.ident.to_string());
                self.tree(&before, &path.tree, is_handed_on);
            }
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.tree(before, tree, is_handed_on));
            }
            UseTree::Name(name) => self.name(before, &name.ident.to_string(), None, is_handed_on),
            UseTree::Rename(name) => {
                self.name(before, &name.ident.to_string(), Some(name.rename.to_string()), is_handed_on);
            }
            UseTree::Glob(_) => {
                let Some(path) = self.absolute(before) else { return };
                self.names.used.push(path);
            }
        }
    }

    fn name(&mut self, before: &Path, name: &str, rename: Option<String>, is_handed_on: bool) {
        let mut path = before.clone();
        if name != "self" {
            path.push(name.to_owned());
        }
        let Some(absolute) = self.absolute(&path) else { return };
        if is_handed_on {
            let known_as = rename.unwrap_or_else(|| path.last().cloned().unwrap_or_default());
            self.names.handed_on.insert(known_as, absolute);
        } else {
            self.names.used.push(absolute);
        }
    }
}

impl<'ast> Visit<'ast> for Collect {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_for_tests(&item.attrs) {
            let is_handed_on = !matches!(item.vis, Visibility::Inherited);
            self.tree(&Path::new(), &item.tree, is_handed_on);
        }
    }

    /// `pub(super)` and `pub(in …)` use nothing.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts: Path = path.segments.iter().map(|part| part.ident.to_string()).collect();
        if matches!(parts[0].as_str(), "crate" | "super") && path.leading_colon.is_none() {
            self.names.used.extend(self.absolute(&parts));
        }
        visit::visit_path(self, path);
    }
}

/// The loops among the files of a crate.
fn loops(sources: &[&Source]) -> Vec<Loop> {
    let mut of_module: BTreeMap<&Path, usize> = BTreeMap::new();
    let mut names = Vec::new();
    for (number, source) in sources.iter().enumerate() {
        let mut collect = Collect { module: source.module.clone(), names: Names::default() };
        collect.visit_file(&source.file);
        names.push(collect.names);
        of_module.insert(&source.module, number);
    }
    let graph = Graph { of_module, names };
    let uses: Vec<Uses> = (0..sources.len()).map(|file| graph.uses_of(file)).collect();
    let path = |file: usize| sources[file].path.display().to_string();
    let mut found = Vec::new();
    for files in strongly_connected(&uses).into_iter().filter(|files| files.len() > 1) {
        let mut ties = Vec::new();
        for &file in &files {
            for (other, names) in uses[file].iter().filter(|(other, _)| files.contains(other)) {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                ties.push(format!("{} -> {}: {}", path(file), path(*other), names.join(", ")));
            }
        }
        ties.sort();
        found.push(Loop { files: files.into_iter().map(path).collect(), ties });
    }
    found
}

/// The files that a file uses, each with the names used.
type Uses = BTreeMap<usize, BTreeSet<String>>;

struct Graph<'a> {
    of_module: BTreeMap<&'a Path, usize>,
    names: Vec<Names>,
}

impl Graph<'_> {
    fn uses_of(&self, file: usize) -> Uses {
        let mut uses = Uses::new();
        for path in &self.names[file].used {
            if let Some(other) = self.definer(path, HANDS_MAX).filter(|&other| other != file) {
                uses.entry(other).or_default().extend(path.last().cloned());
            }
        }
        uses
    }

    /// The file that defines what the path names.
    fn definer(&self, path: &[String], hands: usize) -> Option<usize> {
        let known =
            (0..=path.len()).rev().find(|&length| self.of_module.contains_key(&path[..length].to_vec()))?;
        let file = self.of_module[&path[..known].to_vec()];
        let (Some(name), Some(fewer)) = (path.get(known), hands.checked_sub(1)) else { return Some(file) };
        let names = &self.names[file];
        if let Some(target) = names.handed_on.get(name) {
            let further = [&target[..], &path[known + 1..]].concat();
            return self.definer(&further, fewer).or(Some(file));
        }
        // Only a module that is a file of its own can have something to hand on here.
        Some(file)
    }
}

/// Tarjan's algorithm.
fn strongly_connected(uses: &[Uses]) -> Vec<Vec<usize>> {
    struct Walk<'a> {
        uses: &'a [Uses],
        order: Vec<Option<usize>>,
        lowest: Vec<usize>,
        is_open: Vec<bool>,
        open: Vec<usize>,
        visited: usize,
        found: Vec<Vec<usize>>,
    }
    impl Walk<'_> {
        fn visit(&mut self, at: usize) {
            let order = self.visited;
            self.visited += 1;
            (self.order[at], self.lowest[at], self.is_open[at]) = (Some(order), order, true);
            self.open.push(at);
            for &next in self.uses[at].keys() {
                match self.order[next] {
                    None => {
                        self.visit(next);
                        self.lowest[at] = self.lowest[at].min(self.lowest[next]);
                    }
                    Some(earlier) if self.is_open[next] => self.lowest[at] = self.lowest[at].min(earlier),
                    Some(_) => {}
                }
            }
            if self.lowest[at] == order {
                let first = self.open.iter().rposition(|&open| open == at).unwrap_or(0);
                let component = self.open.split_off(first);
                component.iter().for_each(|&closed| self.is_open[closed] = false);
                self.found.push(component);
            }
        }
    }
    let count = uses.len();
    let (order, lowest, is_open) = (vec![None; count], vec![0; count], vec![false; count]);
    let mut walk = Walk { uses, order, lowest, is_open, open: Vec::new(), visited: 0, found: Vec::new() };
    for start in 0..count {
        if walk.order[start].is_none() {
            walk.visit(start);
        }
    }
    walk.found
}
