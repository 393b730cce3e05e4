//! Which volumes a list shows, and in which order: what a client asks for, one filter or many, all of which must hold.

use quoin_api::{Volume, VolumeKind};
use quoin_volume::Folder;
use std::cmp::Ordering;

/// The existing filters, for the refusal of an unknown one.
const FIELDS: &str = "name, folder, tag, kind, source, host, sort or limit";
/// What a list may be sorted by.
const SORTS: [(&str, Sort); 6] = [
    ("name", |a, b| a.name.cmp(&b.name)),
    ("folder", |a, b| a.folder.cmp(&b.folder)),
    ("size", |a, b| a.size_bytes.cmp(&b.size_bytes)),
    ("allocated", |a, b| a.mapped_bytes.cmp(&b.mapped_bytes)),
    ("mapped", |a, b| a.mapped_bytes.cmp(&b.mapped_bytes)),
    ("created", |a, b| a.created_ms.cmp(&b.created_ms)),
];

type Sort = fn(&Volume, &Volume) -> Ordering;

/// Which volumes are wanted. The default: all of them, oldest first.
#[derive(Clone, Debug, Default)]
pub struct VolumeSelection {
    name: Option<String>,
    folder: Option<Folder>,
    tags: Vec<(String, Option<String>)>,
    kinds: Vec<VolumeKind>,
    source: Option<String>,
    host: Option<String>,
    sort: Option<(Sort, bool)>,
    limit: Option<usize>,
}

impl VolumeSelection {
    /// What these parameters, each a name and a value, ask for. `tag` and `kind` may be given more than once: then all
    /// tags must be there, and any of the kinds.
    ///
    /// # Errors
    /// A parameter is invalid: which one, and why.
    pub fn parse(parameters: &[(String, String)]) -> Result<Self, String> {
        let mut selection = Self::default();
        for (at, (field, value)) in parameters.iter().enumerate() {
            let repeats = parameters[..at].iter().any(|(before, _)| before == field);
            if repeats && !["tag", "kind"].contains(&field.as_str()) {
                return Err(format!("{field} is given more than once"));
            }
            selection.add(field, value)?;
        }
        Ok(selection)
    }

    fn add(&mut self, field: &str, value: &str) -> Result<(), String> {
        match field {
            "name" => self.name = Some(value.to_owned()),
            "folder" => self.folder = Some(Folder::parse(value).map_err(|e| format!("folder: {e}"))?),
            "tag" => self.tags.push(match value.split_once('=') {
                Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
                None => (value.to_owned(), None),
            }),
            "kind" => {
                let kind = VolumeKind::ALL.into_iter().find(|kind| kind.name() == value);
                let all = VolumeKind::ALL.map(VolumeKind::name).join(", ");
                self.kinds.push(kind.ok_or_else(|| format!("kind: {value:?} is none of {all}"))?);
            }
            "source" => self.source = Some(value.to_owned()),
            "host" => self.host = Some(value.to_owned()),
            "sort" => {
                let (name, descends) = value.strip_prefix('-').map_or((value, false), |name| (name, true));
                let sort = SORTS.iter().find(|(known, _)| *known == name);
                let all = SORTS.map(|(known, _)| known).join(", ");
                let wrong = || format!("sort: {value:?} is none of {all}, nor one of them behind a '-'");
                self.sort = Some((sort.ok_or_else(wrong)?.1, descends));
            }
            "limit" => {
                let limit = value.parse().map_err(|_| format!("limit: {value:?} is not a number"))?;
                self.limit = Some(limit);
            }
            _ => return Err(format!("unknown field `{field}`, expected {FIELDS}")),
        }
        Ok(())
    }

    /// The selected ones of `volumes`, in the selected order. Volumes that are equal in this order keep their
    /// positions.
    pub fn of(&self, mut volumes: Vec<Volume>) -> Vec<Volume> {
        volumes.retain(|volume| self.holds(volume));
        if let Some((sort, descends)) = self.sort {
            volumes.sort_by(|a, b| if descends { sort(b, a) } else { sort(a, b) });
        }
        volumes.truncate(self.limit.unwrap_or(usize::MAX));
        volumes
    }

    fn holds(&self, volume: &Volume) -> bool {
        let tagged = |(key, value): &(String, Option<String>)| {
            volume.tags.get(key).is_some_and(|own| value.as_ref().is_none_or(|value| own == value))
        };
        let inside = |folder: &Folder| Folder::parse(&volume.folder).is_ok_and(|own| folder.holds(&own));
        self.name.as_ref().is_none_or(|pattern| matches(pattern, &volume.name))
            && self.folder.as_ref().is_none_or(inside)
            && self.tags.iter().all(tagged)
            && (self.kinds.is_empty() || self.kinds.contains(&volume.kind))
            && self
                .source
                .as_ref()
                .is_none_or(|source| volume.origin.as_ref().is_some_and(|o| o.source == *source))
            && self.host.as_ref().is_none_or(|host| volume.mappings.iter().any(|m| m.host == *host))
    }
}

/// Whether a name is what a pattern describes, in which '*' stands for any characters and '?' for one.
pub fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut seen) = (0, 0);
    // The last '*' met, and where in the name what it stands for ends.
    let mut star = None;
    while seen < name.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, seen));
                at += 1;
            }
            Some(&letter) if letter == '?' || letter == name[seen] => (at, seen) = (at + 1, seen + 1),
            _ => {
                let Some((before, end)) = star else { return false };
                star = Some((before, end + 1));
                (at, seen) = (before + 1, end + 1);
            }
        }
    }
    pattern[at..].iter().all(|letter| *letter == '*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use quoin_api::{Origin, OriginKind};
    use std::collections::BTreeMap;
    use uuid::Uuid;

    fn volume(name: &str, size_bytes: u64, folder: &str, tag: &str) -> Volume {
        Volume {
            name: name.into(),
            uuid: Uuid::nil(),
            wwn: String::new(),
            size_bytes,
            block_bytes: 512,
            mapped_bytes: None,
            freed_by_delete_bytes: None,
            thick: false,
            reserved_bytes: None,
            trimming: false,
            tags: BTreeMap::from([("app".to_owned(), tag.to_owned())]),
            folder: folder.into(),
            policy: "default".into(),
            compliance: None,
            compression: None,
            deduplication: None,
            kind: if name.starts_with("gold") { VolumeKind::Template } else { VolumeKind::Volume },
            writable: true,
            modified_ms: None,
            retain_until_ms: None,
            created_ms: 0,
            origin: name.strip_prefix("pg-").map(|_| Origin {
                kind: OriginKind::Clone,
                source: if size_bytes == 3 { "gold" } else { "web" }.into(),
                source_deleted: false,
                taken_ms: 0,
                group: None,
                set: None,
            }),
            offline: None,
            group: None,
            mappings: Vec::new(),
        }
    }

    fn names(query: &[(&str, &str)]) -> Result<Vec<String>, String> {
        let volumes = vec![
            volume("pg-1", 3, "prod/sql", "a"),
            volume("pg-2", 1, "prod", "b"),
            volume("gold", 2, "", "a"),
            volume("web", 2, "production", "c"),
        ];
        let query: Vec<_> = query.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let selected = VolumeSelection::parse(&query)?.of(volumes);
        Ok(selected.into_iter().map(|volume| volume.name).collect())
    }

    #[test]
    fn all_filters_must_hold() {
        for (query, found) in [
            (&[][..], "pg-1 pg-2 gold web"),
            (&[("name", "pg-*")], "pg-1 pg-2"),
            (&[("name", "pg")], ""),
            (&[("folder", "prod")], "pg-1 pg-2"),
            (&[("folder", "/")], "pg-1 pg-2 gold web"),
            (&[("tag", "app=a")], "pg-1 gold"),
            (&[("tag", "app"), ("tag", "app=b")], "pg-2"),
            (&[("tag", "tier")], ""),
            (&[("kind", "template")], "gold"),
            (&[("kind", "template"), ("kind", "volume"), ("name", "*g*")], "pg-1 pg-2 gold"),
            (&[("source", "gold")], "pg-1"),
            (&[("host", "h1")], ""),
            (&[("sort", "name")], "gold pg-1 pg-2 web"),
            (&[("sort", "-size")], "pg-1 gold web pg-2"),
            (&[("sort", "size"), ("limit", "2")], "pg-2 gold"),
            (&[("limit", "0")], ""),
        ] {
            assert_eq!(names(query).unwrap().join(" "), found, "{query:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (query, said) in [
            (&[("colour", "red")][..], "unknown field `colour`, expected name, folder, tag"),
            (&[("name", "a"), ("name", "b")], "name is given more than once"),
            (&[("folder", "a//b")], "\"a//b\" is not a folder"),
            (&[("kind", "disk")], "\"disk\" is none of volume, snapshot, clone, template"),
            (&[("sort", "colour")], "none of name, folder, size"),
            (&[("limit", "-1")], "\"-1\" is not a number"),
        ] {
            let error = names(query).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn patterns_take_as_long_as_they_and_the_name_are() {
        for (pattern, name, fits) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*-1*", "pg-1-2", true),
            ("a*b*c", "axbxbxc", true),
            ("a*b*c", "axbxbx", false),
        ] {
            assert_eq!(matches(pattern, name), fits, "{pattern} {name}");
        }
        let (pattern, name) = ("*a".repeat(2000), "a".repeat(63));
        assert!(!matches(&(pattern + "b"), &name));
    }
}
