//! What the figures were measured on.

use std::fs;
use std::path::Path;

/// A description, one fact a line: name and value.
pub(crate) fn describe(dir: &Path) -> Vec<(&'static str, String)> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let cpuinfo = read("/proc/cpuinfo");
    let (mount, source, kind, options) = mount_of(&read("/proc/self/mountinfo"), dir);
    vec![
        ("CPU", format!("{} × {}", cpuinfo.matches("processor\t").count(), field(&cpuinfo, "model name"))),
        ("Memory", field(&read("/proc/meminfo"), "MemTotal")),
        ("Kernel", read("/proc/sys/kernel/osrelease")),
        ("System", field(&read("/etc/os-release").replace('=', ":"), "PRETTY_NAME").replace('"', "")),
        ("File system", format!("{kind} ({options}) at {mount}")),
        ("Drive", drive(&source)),
    ]
}

/// The value behind `key` in lines of `key: value`.
fn field(text: &str, key: &str) -> String {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.trim() == key)
        .map_or_else(|| "unknown".to_owned(), |(_, value)| value.trim().to_owned())
}

/// Mount point, source, type and options of the mount that holds `dir` (proc_pid_mountinfo(5)).
fn mount_of(mountinfo: &str, dir: &Path) -> (String, String, String, String) {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    mountinfo
        .lines()
        .filter_map(|line| {
            let (left, right) = line.split_once(" - ")?;
            let mount = left.split(' ').nth(4)?;
            let mut right = right.split(' ');
            let (kind, source) = (right.next()?, right.next()?);
            let options = right.next().unwrap_or_default();
            dir.starts_with(mount)
                .then(|| (mount.to_owned(), source.to_owned(), kind.to_owned(), options.to_owned()))
        })
        .max_by_key(|(mount, ..)| mount.len())
        .unwrap_or_default()
}

fn drive(source: &str) -> String {
    let name = source.rsplit('/').next().unwrap_or_default();
    let read = |what: &str| fs::read_to_string(format!("/sys/class/block/{name}/{what}")).unwrap_or_default();
    let gigabytes = read("size").trim().parse::<u64>().unwrap_or(0) * 512 / 1_000_000_000;
    let cache = read("queue/write_cache");
    let facts = [
        Some(read("device/model").trim().to_owned()).filter(|model| !model.is_empty()),
        (gigabytes > 0).then(|| format!("{gigabytes} GB")),
        (!cache.is_empty()).then(|| format!("{} cache", cache.trim())),
        (read("queue/rotational").trim() == "1").then(|| "rotational".to_owned()),
    ];
    std::iter::once(source.to_owned()).chain(facts.into_iter().flatten()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_mount_is_found() {
        let info = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard\n\
                    40 22 0:5 / /proc rw - proc proc rw\n\
                    50 22 254:16 / /proc/self rw - xfs /dev/vdb rw\ngarbage";
        let (mount, source, kind, options) = mount_of(info, Path::new("/nowhere/at/all"));
        assert_eq!([mount, source, kind, options], ["/", "/dev/vda", "ext4", "rw,discard"]);
        assert_eq!(field("a\t: b: c\n", "a"), "b: c");
        assert_eq!(field("", "a"), "unknown");
    }
}
