//! `[events]`: how many events of each class are kept, and for how long.

use crate::keys::{Key, Kind, Section};
use quoin_array::{EventClass, Keep, Retention};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The most events of a class that can be kept.
const COUNT_MAX: u64 = 5000;
/// The most days.
const DAYS_MAX: u64 = 3650;

macro_rules! classes {
    ($($count:ident, $days:ident, $what:literal, $default:literal;)*) => {
        /// How many events are kept.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct EventsConfig {$(
            #[doc = concat!("At most so many events ", $what, ".")]
            #[serde(skip_serializing_if = "Option::is_none")]
            pub $count: Option<u32>,
            #[doc = concat!("Events ", $what, " no longer than so many days.")]
            #[serde(skip_serializing_if = "Option::is_none")]
            pub $days: Option<u32>,
        )*}

        impl EventsConfig {
            /// What is kept of each class.
            pub fn retention(&self) -> Retention {
                let mut retention = Retention::default();
                let given = [$((self.$count, self.$days)),*];
                for (class, (count, days)) in EventClass::ALL.into_iter().zip(given) {
                    let Keep { count: usual, age } = retention.of(class);
                    let age = days.map(|days| Duration::from_secs(u64::from(days) * 86_400)).or(age);
                    retention.set(class, Keep { count: count.unwrap_or(usual), age });
                }
                retention
            }
        }

        /// The table of the file.
        pub(crate) const SECTION: Section = Section {
            name: "events",
            is_array: false,
            about: "How many events are kept, the newest of each class, and for how long. No class takes the place of \
                    another. All together take 320 bytes each of the pool on average, at most 4 MiB and at most 1/1024 of \
                    the pool (or 64 KiB); when a class needs more than its part of that, fewer of it are kept.",
            keys: &[$(
                Key {
                    name: stringify!($count),
                    about: concat!("The most events ", $what, "."),
                    kind: Kind::Number(1, COUNT_MAX),
                    default: $default,
                    example: $default,
                },
                Key {
                    name: stringify!($days),
                    about: concat!("The days for which events ", $what, " are kept."),
                    kind: Kind::Number(1, DAYS_MAX),
                    default: "no limit",
                    example: "90",
                },
            )*],
        };
    };
}

classes! {
    info_count, info_days, "that the array tells by itself, of severity info", "500";
    notice_count, notice_days, "of severity notice", "300";
    warning_count, warning_days, "of severity warning", "500";
    error_count, error_days, "of severity error", "500";
    critical_count, critical_days, "of severity critical", "300";
    audit_count, audit_days, "that tell of changes by clients, of any severity", "1000";
    refused_count, refused_days, "that tell of refused tokens, logins and changes", "200";
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order of the keys is that of the classes, and the defaults that are documented are those that hold.
    #[test]
    fn each_key_sets_its_class_and_the_documented_defaults_hold() {
        let usual = EventsConfig::default().retention();
        for (pair, class) in SECTION.keys.chunks(2).zip(EventClass::ALL) {
            assert_eq!(pair[0].default.parse(), Ok(usual.of(class).count), "{}", pair[0].name);
            let text = format!("{} = 7\n{} = 3", pair[0].name, pair[1].name);
            let set = toml::from_str::<EventsConfig>(&text).unwrap().retention();
            let keep = Keep { count: 7, age: Some(Duration::from_secs(3 * 86_400)) };
            for other in EventClass::ALL {
                assert_eq!(set.of(other), if other == class { keep } else { usual.of(other) });
            }
            let named = match class {
                EventClass::Severity(severity) => severity.to_string(),
                EventClass::Audit => "audit".to_owned(),
                EventClass::Refused => "refused".to_owned(),
            };
            assert_eq!(pair[0].name, format!("{named}_count"));
        }
    }
}
