//! What to do next about a problem: the one table of steps and of the command lines that take them.
//!
//! The array names a step and the objects it is about, and knows no command. The text is part of what clients get in
//! [`Problem::next`](crate::Problem), so a client without the table shows it as well. One row is one step: its name,
//! the objects it names, and what people read.

use std::fmt;
use uuid::Uuid;

/// Writes the enum of all steps and the texts from one row per step.
macro_rules! next_steps {
    (
        $(#[$about:meta])*
        pub enum $steps:ident<$life:lifetime> {
            $($step:ident $({ $($field:ident: $type:ty),+ })? => $text:literal,)+
        }
    ) => {
        $(#[$about])*
        pub enum $steps<$life> {
            $(
                #[doc = concat!("\"", $text, "\"")]
                $step $({ $(#[doc = concat!("The ", stringify!($field), " in the text.")] $field: $type,)+ })?,
            )+
        }

        impl fmt::Display for $steps<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$step $({ $($field),+ })? => write!(f, $text),)+
                }
            }
        }
    };
}

next_steps! {
    /// What to do next about a problem. Its [`Display`](fmt::Display) is the text for people.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum NextStep<'a> {
        // Names and values.
        ChooseAnotherName => "choose another name",
        ChooseAnotherSize => "choose another size",
        GiveThresholds => "give percents from 1 to 100, each not above the next one, or off; quoin pool show shows what holds",
        GiveOneOfTheTwo => "give only one of the two",
        WriteTag => "give tags as KEY=VALUE, such as app=db1",
        WriteFolder => "give a path of names of a-z, 0-9, '.', '_' and '-', such as prod/sql",

        // The array and its pool.
        AttachDrives => "attach its drives; the array then reopens the pool. See quoin status and quoin events",
        AwaitDrives => "see quoin status; the array opens the pool as soon as its drives are there",
        CheckPool => "see quoin status and the log; or stop the array and run quoin check",
        StartWriterVersion => "start the Quoin version that wrote it; or stop the array and run quoin check",
        FreePoolSpace => "delete volumes or unmap data in them, then try again",

        NameDrivesToExpand => "see quoin drive list; to name drives: quoin pool expand --drive DRIVE; to see what it would come to: \
                               quoin pool expand --dry-run",
        ExpandByLess => "make room there, grow by less, or add drives: quoin drive add PATH",
        ResumeExpansion =>
            "resolve the cause given above, then have the pool take what is there: quoin pool expand --to-devices",

        // Drives.
        ListDrives => "list them: quoin drive list",
        ReplaceDrive { drive: &'a str } =>
            "replace it: quoin drive replace {drive} PATH; or go on without it: quoin drive remove {drive}",
        RemoveDrive { drive: &'a str } => "remove it: quoin drive remove {drive}",
        ConfirmNarrower { drive: &'a str } =>
            "add a drive in another fault domain first: quoin drive add PATH; or confirm: quoin drive evacuate {drive} --narrower",
        MakeRoomForDrive => "provide what is lacking, or replace the drive: quoin drive replace DRIVE PATH; see quoin drive list",
        AttachDrive { drive: &'a str } => "attach it, or correct the path {drive} in quoin.toml and restart the array",
        FailDrive { drive: &'a str } =>
            "wait until it answers; or have the pool go on without it: quoin drive fail {drive}",
        TakeOutDrive { drive: &'a str } => "take {drive} out of quoin.toml before the array starts again",
        BringDrivesBack =>
            "bring the drives back that are away: quoin drive list shows which; quoin volume unreadable lists what cannot be \
             read meanwhile",
        RestoreProtection => "add a drive for each that failed: quoin drive add PATH; quoin drive list shows which",
        AddBefore =>
            "keep it in service; a drive is only taken out while the others hold all that it does: quoin drive list",
        EraseDrive => "choose another drive; or, to overwrite what it holds, add --force; a drive of another Quoin pool must be \
                       erased first",
        CheckDrive => "check its path, its size and that nothing uses it; then try again: quoin drive add --help",
        GiveWholePath => "give the whole path, as quoin status shows it",
        EmulateDrive =>
            "give it an emulate table in quoin.toml and restart the array; only emulated drives take such commands",
        SeeEmulateHelp => "see quoin drive emulate --help",
        ReturnDrive { drive: &'a str } => "let it return first: quoin drive emulate return {drive}",
        WriteFirst => "write to a volume first; what was written reaches the data area with the next checkpoint",

        // Volumes.
        ListVolumes => "list them: quoin volume list",
        NameAnotherVolume => "name another volume",
        NeedLessSpace =>
            "choose a smaller size, make it thin, or delete volumes or unmap data in them; see quoin status",
        DiscardTail =>
            "discard the data there in the host first (fstrim, blkdiscard); or add --force to discard it",
        AwaitTail { volume: &'a str } =>
            "try again later; quoin volume show {volume} tells whether it is done",
        ChangeClone { template: &'a str } =>
            "change a clone instead; or make it an ordinary volume again: quoin volume set {template} --no-template",
        AllowWrites { volume: &'a str } =>
            "clone it and change the clone; or let it be written to: quoin volume set {volume} --writable",
        UnmapVolume { volume: &'a str } => "unmap it first, or use: quoin volume delete {volume} --unmap",
        DeleteExportFirst { volume: &'a str } =>
            "delete the export first, or use: quoin volume delete {volume} --unmap",
        LogOut => "unmount it there and log out first; or add --force, and the hosts' I/O may fail",

        // The recycle bin.
        ListDeleted => "list them: quoin recycle-bin list",
        RestoreDeleted { volume: &'a str } =>
            "restore it: quoin recycle-bin restore {volume}; or list volumes: quoin volume list",
        NameDeletedByUuid => "name the one you mean by its UUID: quoin recycle-bin list",
        RestoreUnderAnotherName { volume: &'a str } =>
            "restore it under another name: quoin recycle-bin restore {volume} --name NAME",
        RestoreThin => "restore it as a thin volume with --thin; or free space first: quoin space",
        EmptyBin =>
            "empty the recycle bin: quoin recycle-bin empty; or choose a smaller size, make it thin, or free space in \
             volumes; see quoin space",
        GiveBinTime => "give up to 100 years, such as 12h, 7d or 4w; or off",

        SetReduction { volume: &'a str } =>
            "set --compression or --dedup first, such as: quoin volume set {volume} --compression lz4",

        // Copies.
        ListCopies => "list them: quoin volume copies",
        ShowCopy { copy: u32 } => "show its result: quoin volume copies {copy}",
        AwaitCopy { copy: u32 } =>
            "wait until it has ended, or cancel it: quoin volume copy-cancel {copy}",
        AwaitSomeCopy =>
            "wait until one has ended: quoin volume copies; or cancel one: quoin volume copy-cancel ID",
        CopyElsewhere => "give another volume, or another place in it: --to OFFSET",
        CopyWholeBlocks => "give multiples of it, such as 0, 4K or 1G",
        CopyWithin => "give a range within it, or omit the length to copy the rest",
        CloneInstead { source: &'a str } => "clone it instead: quoin volume clone {source} NAME",
        GrowOrCopyLess { volume: &'a str, needed_bytes: u64 } =>
            "grow it: quoin volume grow {volume} --size {needed_bytes}; or copy less: --length",

        // Snapshots.
        ListSnapshots => "list them: quoin snapshot list",
        TakeImmutableSnapshot { volume: &'a str } =>
            "take an immutable snapshot of it: quoin snapshot create {volume} --retain 7d",
        AwaitRetention =>
            "wait until then; retention cannot be shortened and passes only while the array runs; quoin status shows \
             the retention clock",
        GiveRetention => "give from a second to 100 years, such as 12h, 7d or 4w",
        ChooseAnotherSnapshot =>
            "choose another snapshot; or add --force to take it with what was written to it",
        RefreshSet { group: &'a str, set: &'a str, snapshot: &'a str } =>
            "refresh the whole set: quoin group refresh {group} {set}; or detach the snapshot from the set: quoin \
             snapshot promote {snapshot}",
        RestoreSourceFirst { source: &'a str, uuid: Uuid } =>
            "restore {source} from the recycle bin first: quoin recycle-bin restore {uuid}",
        RefreshFromAnother { volume: &'a str } =>
            "refresh it from another volume: quoin snapshot refresh {volume} --from VOLUME",
        RestoreElsewhere { snapshot: &'a str, source: &'a str } =>
            "restore another volume from it: quoin snapshot restore {snapshot} --to VOLUME; or clone it: quoin volume \
             clone {snapshot} {source}",
        GiveReserve => "give one of the two, such as --percent 20 or --size 100G",
        ConfirmReserve =>
            "to set it all the same, confirm: add --yes, or \"confirm\": true to the request; or choose a larger reserve",
        RemoveReserve => "remove one that is not needed: quoin snapshot reserve lists them",

        GiveQos => "give --iops, --bandwidth or both, such as --iops 5000 --bandwidth 200M",
        RemoveQos => "remove one that is not needed: quoin qos lists them",

        // Consistency groups.
        ListGroups => "list them: quoin group list",
        ShowGroup { group: &'a str } => "list them: quoin group show {group}",
        CreateAnotherGroup => "create another group",
        AddToGroup { group: &'a str } => "add volumes first: quoin group add {group} VOLUME",
        RemoveFromGroup { group: &'a str, volume: &'a str } =>
            "remove it from that group first: quoin group remove {group} {volume}",
        LeaveGroup { group: &'a str, volume: &'a str } =>
            "take it out of the group first: quoin group remove {group} {volume}; or add --force",
        MatchGroupToSet =>
            "add or remove volumes until the group matches the set, or restore single volumes: quoin snapshot restore \
             NAME",
        UnmapSet { group: &'a str, set: &'a str } =>
            "unmap them first, or use: quoin group delete-snapshot {group} {set} --unmap",

        // Policies.
        ListPolicies => "list them: quoin policy list",
        GiveLayout => "give one of the two, such as --layout raid5 or --failures-to-tolerate 1",
        ChooseLayout =>
            "choose another layout, add drives in other fault domains, or place what can be placed: --force-provisioning",
        ChooseAllowedLayout => "choose another layout; quoin drive list shows the fault domains",
        AssignOtherPolicy =>
            "give its volumes another one first: quoin volume set VOLUME --policy default; quoin volume list shows which they are",
        UseAnotherPolicy => "create another policy: quoin policy create NAME --layout LAYOUT",

        // Schedules.
        ListSchedules => "list them: quoin schedule list",
        WriteSchedule =>
            "give it as in: quoin schedule create nightly --volume v1 --every hourly:24,daily:7 --at 02:30",
        DeleteSchedule { schedule: &'a str } => "delete the schedule: quoin schedule delete {schedule}",

        // Hosts, mappings and exports.
        ListHosts => "list them: quoin host list",
        GiveInitiator => "give at least one, such as --initiator iqn.2026-11.test:h1",
        WriteInitiator =>
            "give the initiator name of the host, such as iqn.1993-08.org.debian:01:abcdef; on Linux it is in \
             /etc/iscsi/initiatorname.iscsi",
        UseOtherInitiators { host: &'a str } =>
            "map volumes to host {host} instead, or give that host other initiators first",
        ChooseOtherSecrets =>
            "use a different random secret for each direction; 12 to 16 characters work with every initiator",
        RenameWithFewerMappings =>
            "unmap volumes from it until it has 250 at most, rename it, and map them again",
        UnmapHost { host: &'a str } => "unmap them first, or use: quoin host delete {host} --unmap",
        ListMappings => "list them: quoin mappings",
        SetMapping { volume: &'a str, host: &'a str } =>
            "nothing needs to be done; to change what the host may do: quoin mapping set {volume} --host {host}",
        ChooseLunInRange => "choose a LUN from 0 to 16383, or omit it",
        ChooseAnotherLun => "choose another LUN, or omit it to get the lowest free one",
        UnmapOneVolume => "unmap a volume that it no longer needs",
        ListExports => "list them: quoin export list",
        DeleteExports =>
            "delete one that quoin export list shows without clients: quoin export delete NAME",

        // Reservations.
        ClearReservations { volume: &'a str } =>
            "release them on the hosts; if none of them is left to do so: quoin reservation clear {volume} --force",

        // Portals.
        ListPortals => "list them: quoin portal list",
        GivePortal =>
            "give an address of this machine that nothing else listens at, such as 10.0.1.5:3260; ip address lists them, \
             and ss -ltnp what listens",
        DeletePortal => "delete one that is not needed: quoin portal delete ADDRESS",
        DisablePortal { portal: &'a str } =>
            "disable it: quoin portal disable {portal}; or take it out there and restart the array",

        // Jobs and scrubs.
        ListJobs => "list the jobs: quoin job list",
        ShowJob { job: &'a str } => "see its outcome: quoin job show {job}",
        WatchJob { job: &'a str } => "follow it to its end: quoin job watch {job}",
        ShowOrStopScrub => "show its progress: quoin scrub status; or stop it: quoin scrub stop",
        ShowLastScrub => "show the result of the last scrub: quoin scrub status",
        SeeScrub => "see quoin scrub status",
        ListUnreadable => "list the ranges: quoin volume unreadable",
    }
}

impl From<NextStep<'_>> for String {
    fn from(step: NextStep<'_>) -> Self {
        step.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_names_the_objects_it_is_about() {
        let step = NextStep::SetMapping { volume: "v1", host: "h1" };
        let text = "nothing needs to be done; to change what the host may do: quoin mapping set v1 --host h1";
        assert_eq!(String::from(step), text);
        let grow = NextStep::GrowOrCopyLess { volume: "v2", needed_bytes: 1 << 24 };
        assert_eq!(grow.to_string(), "grow it: quoin volume grow v2 --size 16777216; or copy less: --length");
    }
}
