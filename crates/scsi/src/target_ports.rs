//! REPORT TARGET PORT GROUPS (SPC-4 §6.37): one group of all ports of the array, each of which serves every unit alike.

/// The group of all ports.
pub(crate) const GROUP: u16 = 1;

/// Parameter data for ports with these relative identifiers.
pub fn target_port_groups(extended: bool, ports: impl Iterator<Item = u16>) -> Vec<u8> {
    /// PREF: this group is the preferred one. ASYMMETRIC ACCESS STATE 0: active/optimized.
    const PREFERRED_OPTIMIZED: u8 = 0x80;
    /// AO_SUP: a port may be active/optimized, and nothing else.
    const AO_SUP: u8 = 0x01;
    let ports: Vec<u16> = ports.collect();
    let [high, low] = GROUP.to_be_bytes();
    let mut body = if extended {
        // Format 1; no implicit transition takes any time.
        vec![0x10, 0, 0, 0]
    } else {
        Vec::new()
    };
    body.extend([PREFERRED_OPTIMIZED, AO_SUP, high, low, 0, 0, 0, ports.len() as u8]);
    for port in ports {
        body.extend([0, 0]);
        body.extend(port.to_be_bytes());
    }
    [&(body.len() as u32).to_be_bytes()[..], &body].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ports_are_in_one_group() {
        let data = target_port_groups(false, [1, 2].into_iter());
        assert_eq!(data, [0, 0, 0, 16, 0x80, 1, 0, 1, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2]);
        assert_eq!(target_port_groups(true, [1].into_iter())[..8], [0, 0, 0, 16, 0x10, 0, 0, 0]);
    }
}
