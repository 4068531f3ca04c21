//! A PCI bus in records of its changes: which lines are noted together where they are unknown, and which are pulled up.

use crate::error::Result;
use crate::pci::layout::{BusSpec, EVENT_LINES, Layout};
use crate::pipeline::records::{self, Packing};

/// Lines whose unknown values are noted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// FRAME#, IRDY#, TRDY#, STOP#: without one of them the clock means nothing.
    Control,
    Devsel,
    Grants,
    Idsels,
    /// One of the lines whose changes are rows.
    Event(usize),
    Perr,
    Serr,
    AdLow,
    AdHigh,
    ByteEnables,
    ByteEnablesHigh,
    Parity,
    ParityHigh,
    /// RST# and the others: unknown reads released.
    Other,
}

impl Group {
    fn of(line: &str) -> Group {
        if let Some(number) = EVENT_LINES.iter().position(|&name| name == line) {
            return Group::Event(number);
        }
        match line {
            "FRAME#" | "IRDY#" | "TRDY#" | "STOP#" => Group::Control,
            "DEVSEL#" => Group::Devsel,
            "PERR#" => Group::Perr,
            "SERR#" => Group::Serr,
            "PAR" => Group::Parity,
            "PAR64" => Group::ParityHigh,
            _ if line.starts_with("GNT") => Group::Grants,
            _ if line.starts_with("IDSEL") => Group::Idsels,
            "CBE4#" | "CBE5#" | "CBE6#" | "CBE7#" => Group::ByteEnablesHigh,
            _ if line.starts_with("CBE") => Group::ByteEnables,
            _ => match line.strip_prefix("AD").and_then(|digits| digits.parse::<u32>().ok()) {
                Some(0..32) => Group::AdLow,
                Some(_) => Group::AdHigh,
                None => Group::Other,
            },
        }
    }
}

impl records::Group for Group {
    fn is_pulled_up(self) -> bool {
        use Group::{AdHigh, AdLow, ByteEnables, ByteEnablesHigh, Idsels, Parity, ParityHigh};
        !matches!(self, AdLow | AdHigh | Idsels | ByteEnables | ByteEnablesHigh | Parity | ParityHigh)
    }

    fn is_noted(self) -> bool {
        self != Group::Other
    }
}

/// How a bus is packed into records, and where its lines are then.
pub fn packed(spec: &BusSpec) -> Result<(Packing<Group>, Layout)> {
    let clk = spec.line("CLK")?;
    let lines = spec.lines.iter().filter(|(name, _)| *name != "CLK");
    let packing = Packing::new(clk, lines.map(|(name, &source)| (source, Group::of(name))).collect());
    let mut layout = Layout::new(spec, packing.unit(), true, |source| packing.place(source))?;
    let flag = |group| packing.unknown(group);
    layout.unknown = flag(Group::Control);
    layout.devsel_unknown = flag(Group::Devsel);
    layout.grants_unknown = flag(Group::Grants);
    layout.idsels_unknown = flag(Group::Idsels);
    for (number, line) in layout.events.iter_mut().enumerate() {
        *line = line.map(|(bit, _)| (bit, flag(Group::Event(number))));
    }
    layout.perr_unknown = flag(Group::Perr);
    layout.serr_unknown = flag(Group::Serr);
    layout.ad_unknown = flag(Group::AdLow);
    layout.ad_high_unknown = flag(Group::AdHigh);
    layout.cbe_unknown = flag(Group::ByteEnables);
    layout.cbe_high_unknown = flag(Group::ByteEnablesHigh);
    layout.par_unknown = flag(Group::Parity);
    layout.par64_unknown = flag(Group::ParityHigh);
    Ok((packing, layout))
}
