//! Which volumes a list shows, as options of the command line.

use crate::client::segment;
use clap::Args;
use quoin_api::VolumeKind;

/// Filters of `quoin volume list`: the array applies them.
#[derive(Args, Debug, Default)]
pub struct ListArgs {
    /// Name pattern: '*' stands for any characters, '?' for one
    #[arg(long, value_name = "PATTERN")]
    name: Option<String>,
    /// Folder; includes the folders below it
    #[arg(long, value_name = "PATH")]
    folder: Option<String>,
    /// Tag as KEY=VALUE, or KEY for any value; repeat to require several
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// Kind of volume; repeat to allow several
    #[arg(long = "kind", value_name = "KIND", value_parser = VolumeKind::ALL.map(VolumeKind::name))]
    kinds: Vec<String>,
    /// Snapshots and clones of this volume
    #[arg(long, value_name = "VOLUME")]
    source: Option<String>,
    /// Volumes mapped to this host
    #[arg(long)]
    host: Option<String>,
    /// Sort by name, folder, size, allocated or created; a leading '-' reverses the order [default: created]
    #[arg(long, value_name = "FIELD", allow_hyphen_values = true)]
    sort: Option<String>,
    /// Show at most this many
    #[arg(long, value_name = "N")]
    limit: Option<u32>,
}

impl ListArgs {
    /// The path of the list, with its query.
    pub(crate) fn path(&self) -> String {
        let one = |field, value: &Option<String>| value.clone().map(|value| (field, value));
        let many = |field, values: &[String]| {
            values.iter().map(|value| (field, value.clone())).collect::<Vec<(&str, String)>>()
        };
        let mut query = many("tag", &self.tags);
        query.extend(many("kind", &self.kinds));
        query.extend(one("name", &self.name));
        query.extend(one("folder", &self.folder));
        query.extend(one("source", &self.source));
        query.extend(one("host", &self.host));
        query.extend(one("sort", &self.sort));
        query.extend(self.limit.map(|limit| ("limit", limit.to_string())));
        let query: Vec<_> =
            query.iter().map(|(field, value)| format!("{field}={}", segment(value))).collect();
        if query.is_empty() { "/volumes".to_owned() } else { format!("/volumes?{}", query.join("&")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_become_a_query() {
        assert_eq!(ListArgs::default().path(), "/volumes");
        let args = ListArgs {
            name: Some("pg-*".into()),
            folder: Some("prod/sql".into()),
            tags: vec!["app=db 1".into(), "gold".into()],
            sort: Some("-size".into()),
            limit: Some(3),
            ..ListArgs::default()
        };
        assert_eq!(
            args.path(),
            "/volumes?tag=app%3Ddb%201&tag=gold&name=pg-%2A&folder=prod%2Fsql&sort=-size&limit=3"
        );
    }
}
