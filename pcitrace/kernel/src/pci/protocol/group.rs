//! Ordinary transactions counted side by side: what is one of them in each lane is told by the same instructions, without a
//! branch that could be guessed wrong.

use super::phases::idsel;
use super::whole::{Line, Lines};
use super::{DUAL_ADDRESS_CYCLE, Protocol, SPECIAL_CYCLE, is_read};
use crate::pci::layout::Layout;
use crate::pci::problems::What;
use crate::pci::rows::{Counts, Flag, Flags, Termination};
use crate::pci::suspects::Suspect;
use crate::pci::tiles::{Has, NONE, ROOM};
use crate::samples::bits::Backend;
use crate::samples::block::{Span, if_data};
use crate::samples::lanes::{EIGHT, Lanes};
use crate::samples::places::Gather;

/// Where some transactions begin and end.
pub(super) struct Group<'a> {
    pub starts: &'a [u16; EIGHT],
    pub ends: &'a [u16; EIGHT],
    /// So many of these are there.
    pub count: usize,
    /// The clock behind the transaction before; behind none there is the first one, in which none begins.
    pub behind: u16,
}

/// All bits of so many lanes, and then none.
const THERE: [u64; 2 * EIGHT] = {
    let mut there = [0; 2 * EIGHT];
    let mut lane = 0;
    while lane < EIGHT {
        there[lane] = !0;
        lane += 1;
    }
    there
};

/// Bits of the commands that are reads.
const READS: u64 = {
    let (mut reads, mut command) = (0, 0);
    while command < 16 {
        reads |= (is_read(command) as u64) << command;
        command += 1;
    }
    reads
};

/// The lines at the clocks of each transaction but the address phase, which is bit 0.
struct Body<L> {
    /// These clocks, none of a lane without a transaction, and the last of them.
    mask: L,
    last: L,
    irdy: L,
    trdy: L,
    stop: L,
    devsel: L,
    /// Data moves; the target stops.
    data: L,
    stopped: L,
}

/// How each transaction ends: the number of a [`Termination`], and where nobody claimed it, or it was given up.
struct Ended<L> {
    termination: L,
    aborted: L,
    gave_up: L,
}

impl<L: Lanes> Body<L> {
    /// `all` gives lanes that are the same.
    #[inline(always)]
    fn ended(&self, layout: &Layout, special: L, all: impl Fn(u64) -> L) -> Ended<L> {
        let Body { trdy, stop, devsel, data, stopped, .. } = *self;
        let (has_devsel, has_stop) = (layout.devsel.is_some(), layout.stop.is_some());
        let code = |termination: Termination| all(termination as u64);
        let at_stop = stopped.first();
        let moved_before = (data & stopped.below_first()).some();
        let retried = code(Termination::DisconnectWithoutData).or_else(moved_before, code(Termination::Retry));
        let claimed = retried.or_else((devsel & at_stop).some(), code(Termination::TargetAbort));
        let without_data = if has_devsel { claimed } else { code(Termination::Unknown) };
        let by_target = code(Termination::DisconnectWithData).or_else((trdy & at_stop).some(), without_data);

        let completed = code(if has_stop { Termination::Completion } else { Termination::Unknown });
        let unclaimed = match (has_devsel, has_stop) {
            (true, _) => !devsel.some(),
            (false, true) => !(trdy | stop).some(),
            (false, false) => all(0),
        };
        let left = code(Termination::MasterAbort).or_else(unclaimed, code(Termination::Unknown));
        let left = code(Termination::SpecialCycle).or_else(special, left);
        let ends_well = ((trdy | stop) & self.last).some();
        let termination = by_target.or_else(stopped.some(), completed.or_else(ends_well, left));

        let unanswered = self.mask.some() & !stopped.some() & !ends_well;
        let gave_up = if has_stop { unanswered & !unclaimed & !special } else { all(0) };
        Ended { termination, aborted: unanswered & unclaimed, gave_up }
    }
}

/// The clocks of some transactions by class, those of each lane.
pub(super) struct Sums<L> {
    address: u64,
    data: L,
    stop: L,
    abort: L,
    turnaround: L,
    decode: L,
    both: L,
    target: L,
    initiator: L,
    inexact: L,
    bytes: L,
    /// Transactions that moved data more than once.
    bursts: L,
}

impl<L: Lanes> Sums<L> {
    /// # Safety
    /// As for [`Lanes::of`].
    #[inline(always)]
    pub unsafe fn none() -> Self {
        // Safety: as the caller says.
        let data = unsafe { L::all(0) };
        let (stop, abort, turnaround, decode, both, target) = (data, data, data, data, data, data);
        let (initiator, inexact, bytes, bursts) = (data, data, data, data);
        Sums { address: 0, data, stop, abort, turnaround, decode, both, target, initiator, inexact, bytes, bursts }
    }

    /// The clocks of the transactions behind their address phases: all but those of data, `wait`. Of these nobody has claimed
    /// the transaction in `undecoded` ones, and `turnaround` is one of a read.
    #[inline(always)]
    fn add(&mut self, body: &Body<L>, wait: L, turnaround: L, undecoded: L, aborted: L) {
        let Body { irdy, trdy, .. } = *body;
        let stop = body.mask & !body.data & !wait;
        let turnaround = wait & turnaround;
        let decode = wait & !turnaround & undecoded;
        let wait = wait & !turnaround & !decode;
        // Of an abort the last clock is what is known as such, and none of the others.
        let abort = body.last & aborted;
        self.data = self.data + body.data.count();
        self.stop = self.stop + stop.count();
        self.abort = self.abort + abort.count();
        self.turnaround = self.turnaround + (turnaround & !abort).count();
        self.decode = self.decode + (decode & !abort).count();
        self.both = self.both + (wait & !irdy & !trdy & !abort).count();
        self.target = self.target + (wait & irdy & !abort).count();
        self.initiator = self.initiator + (wait & !irdy & trdy & !abort).count();
    }

    /// Adds them to the others; how many clocks these are.
    #[inline(always)]
    pub fn add_to(&self, counts: &mut Counts) -> u64 {
        let new = Counts {
            address: self.address,
            data: self.data.total(),
            stop: self.stop.total(),
            abort: self.abort.total(),
            turnaround: self.turnaround.total(),
            decode: self.decode.total(),
            both: self.both.total(),
            target: self.target.total(),
            initiator: self.initiator.total(),
            inexact_phases: self.inexact.total(),
            bytes: self.bytes.total(),
            ..Counts::default()
        };
        counts.add(&new);
        new.busy()
    }

    /// How many of the transactions moved data more than once.
    #[inline(always)]
    pub fn bursts(&self) -> u64 {
        self.bursts.total()
    }
}

/// In one line of the cache. Who has one on the stack keeps all vectors there so, which the compiler does not see to by itself:
/// the group waited for what it had put across two lines.
#[repr(align(64))]
struct InLine([u64; EIGHT]);

impl Protocol {
    /// Counts some transactions and writes their rows, up to the first with two address phases; how many these are. The clocks
    /// are those of `lines` and `span`, in which number `from` is the next one.
    ///
    /// # Safety
    /// As for [`Lanes::of`]; all clocks of the group are there, and the two behind each transaction.
    #[inline(always)]
    pub(super) unsafe fn group<B: Backend, L: Lanes>(
        &mut self,
        lines: &Lines,
        span: &Span,
        sums: &mut Sums<L>,
        of: Group,
        from: usize,
    ) -> usize {
        let layout = &self.layout;
        // Safety: as the caller says, here and below.
        let all = |value: u64| unsafe { L::all(value) };
        let (none, one) = (all(0), all(1));
        let starts = unsafe { L::of_short(of.starts) };

        let unit = B::unit(span.unit());
        let samples = of.starts.map(|start| usize::from(start) * unit);
        let before = of.starts.map(|start| usize::from(start.saturating_sub(1)) * unit);
        let gather = |of: Option<&Gather>, samples: &[usize; EIGHT]| match of {
            Some(gather) => unsafe { gather.each(span.data().as_ptr(), samples) },
            None => none,
        };
        let (cbe, ad) = (if_data::<B, _>(layout.cbe_word.as_ref()), if_data::<B, _>(layout.ad.as_ref()));
        let command = gather(cbe, &samples) & all(0xf);
        let grant = gather(layout.grants.as_ref(), &before);
        let address = gather(ad, &samples);
        let mut count = of.count;
        let dual = command.equal(all(DUAL_ADDRESS_CYCLE.into()));
        if dual.is_any() {
            count = dual.each()[..count].iter().position(|&is| is != 0).unwrap_or(count);
        }
        if count == 0 {
            return 0;
        }
        let is_there = unsafe { L::of(THERE[EIGHT - count..].first_chunk().expect("twice as many")) };
        let clocks = (unsafe { L::of_short(of.ends) } - starts) & is_there;
        // Clocks of the middle of a burst that are not there, and those of all kinds before it.
        let (mut missing, mut missing_before) = (none, none);
        if let all_missing @ [_, ..] = span.all_missing() {
            let (before, behind) =
                unsafe { (numbers_of(all_missing, starts), numbers_of(all_missing, starts + clocks)) };
            missing = behind - before;
            missing_before = before - all(all_missing[from]);
        }

        let (places, within) = (starts.down(all(3)).places(), starts & all(7));
        let window = |line: &Line| unsafe { line.at_each(places, within) };
        let mask = (one.up(clocks) - one) & !one;
        let (irdy, trdy, stop) = (window(&lines.irdy) & mask, window(&lines.trdy) & mask, window(&lines.stop) & mask);
        let (devsel, last) = (window(&lines.devsel) & mask, mask & !mask.down(one));
        let (data, stopped) = (irdy & trdy, irdy & stop);
        let body = Body { mask, last, irdy, trdy, stop, devsel, data, stopped };

        let special = if cbe.is_some() { command.equal(all(SPECIAL_CYCLE.into())) } else { none };
        let ended = body.ended(layout, special, all);
        let reads = if cbe.is_some() { all(READS).down(command) & one } else { none };
        let before_claim = mask & devsel.below_first();
        let undecoded = if layout.devsel.is_some() { before_claim } else { none };
        let wait = mask & !data & !(stopped & !trdy);
        sums.add(&body, wait, reads.up(one), undecoded, ended.aborted);
        sums.address += count as u64;
        sums.bursts = sums.bursts + ((data & !data.first()).some() & one);

        let data_phases = data.count() + missing;
        sums.data = sums.data + missing;
        let mut moved_bytes = data_phases.up(one + one);
        let has_lanes = B::DATA && !layout.cbe.is_empty();
        if has_lanes {
            for lane in &lines.disabled {
                moved_bytes = moved_bytes - (window(lane) & data).count();
            }
        }
        let inexact = if has_lanes { none } else { data_phases };
        sums.inexact = sums.inexact + inexact;
        sums.bytes = sums.bytes + moved_bytes;

        let flag = |flag: Flag, is: L| is & all(1 << flag as u32);
        let has = |what: Has, is: L| is & all(what.bit(true).into());
        let suspect = (window(&lines.suspect) & (mask | one)).some();
        let mut set = flag(Flag::BytesExact, !inexact.some()) | flag(Flag::Suspect, suspect);
        let mut known = Flags::default();
        known.tell(Flag::Dac, cbe.map(|_| false));
        known.tell(Flag::BytesExact, Some(false));
        known.tell(Flag::FastBackToBack, Some(false));
        known.tell(Flag::Suspect, layout.clk.map(|_| false));
        if self.looks_at_phases {
            // Those of which it is not even are no ordinary ones.
            set = set | all(1 << Flag::AddressParityOk as u32);
            known.tell(Flag::AddressParityOk, Some(true));
        }
        let mut wrong = ended.gave_up;
        if B::DATA && (layout.perr.is_some() || layout.serr.is_some()) {
            // Two clocks after the address phase they speak of it first, and two behind the transaction last.
            let speaks = mask.up(one) | mask.up(one + one);
            let (perr, serr) = ((window(&lines.perr) & speaks).some(), (window(&lines.serr) & speaks).some());
            wrong = wrong | perr | serr;
            set = set | flag(Flag::Perr, perr) | flag(Flag::Serr, serr);
            known.tell(Flag::Perr, layout.perr.map(|_| false));
            known.tell(Flag::Serr, layout.serr.map(|_| false));
        }
        let first_clk = self.clk.wrapping_sub(from as u64);
        let mut behind = [of.behind; EIGHT];
        behind[1..].copy_from_slice(&of.ends[..EIGHT - 1]);
        set = set | flag(Flag::FastBackToBack, unsafe { L::of_short(&behind) }.equal(starts));

        let moved = data.some();
        let one_grant = grant.some() & grant.equal(grant.first());
        let always = Has::Address.bit(ad.is_some()) | Has::Command.bit(cbe.is_some());
        let may_have = has(Has::Data, moved) | has(Has::Claim, devsel.some()) | has(Has::Initiator, one_grant);
        // Safety: these clocks are there, also of lanes without a transaction.
        let stamps = |behind: L| unsafe { numbers_of(span.stamps(), starts + behind) };
        let first_data = (data | last).below_first() & (mask | one);
        let (start, start_clk) = (stamps(none).each(), (all(first_clk) + starts + missing_before).each());
        let (tile, at) = self.rows.transactions.room();
        put::<L, _>(&mut tile.start, at, start);
        put::<L, _>(&mut tile.end, at, stamps(mask.count()).each());
        put::<L, _>(&mut tile.start_clk, at, start_clk);
        put::<L, _>(&mut tile.clocks, at, (clocks + missing).each());
        put::<L, _>(&mut tile.address, at, address.each());
        put::<L, _>(&mut tile.data_phases, at, data_phases.each());
        put::<L, _>(&mut tile.first_data, at, (stamps(first_data.count()) & moved).each());
        put::<L, _>(&mut tile.last_data, at, (stamps((data | one).last()) & moved).each());
        put::<L, _>(&mut tile.bytes, at, moved_bytes.each());
        put::<L, _>(&mut tile.target_wait_clks, at, (wait & irdy).count().each());
        put::<L, _>(&mut tile.initiator_wait_clks, at, (wait & !irdy).count().each());
        put::<L, _>(&mut tile.devsel_clks, at, ((before_claim.count() + one) & devsel.some()).each());
        put::<L, _>(&mut tile.address_phases, at, [1; EIGHT]);
        put::<L, _>(&mut tile.command, at, if cbe.is_some() { command.bytes() } else { [NONE; EIGHT] });
        put::<L, _>(&mut tile.idsel, at, [NONE; EIGHT]);
        put::<L, _>(&mut tile.termination, at, ended.termination.bytes());
        put::<L, _>(&mut tile.initiator, at, (grant.last() | !one_grant).bytes());
        put::<L, _>(&mut tile.flags_set, at, set.bytes());
        put::<L, _>(&mut tile.flags_known, at, [known.known; EIGHT]);
        put::<L, _>(&mut tile.has, at, (may_have | all(always.into())).bytes());
        // What few transactions have, or few buses, comes after the others, or a transaction took an eighth longer.
        if let Some(idsels) = &layout.idsels {
            for (at, &start) in (at..at + count).zip(of.starts) {
                let command = cbe.map(|_| tile.command[at]);
                tile.idsel[at] = idsel(command, idsels, span.sample(start.into())).unwrap_or(NONE);
            }
        }
        if let Some(ad) = ad.filter(|_| special.is_any()) {
            let (special, first_irdy) = (special.each(), irdy.below_first().count().each());
            for nth in (0..count).filter(|&nth| special[nth] != 0) {
                let sample = span.sample(usize::from(of.starts[nth]) + first_irdy[nth] as usize);
                tile.message[at + nth] = ad.get(sample) as u32;
                tile.has[at + nth] |= Has::Message.bit(true);
            }
        }
        self.rows.transactions.wrote(count);
        if suspect.is_any() {
            let (suspect, numbers) = (suspect.each(), self.numbers);
            self.rows.problems.suspects(count, |nth| {
                let (stamp, clk) = (start[nth], start_clk[nth]);
                (Suspect { stamp, clk, transaction: numbers + nth as u64 }, suspect[nth] != 0)
            });
        }
        self.numbers += count as u64;
        let behind = usize::from(of.ends[count - 1]);
        self.after_transaction = Some(first_clk.wrapping_add(behind as u64 + span.missing(from, behind)));
        if wrong.is_any() {
            self.tell_wrong(count, &InLine(ended.gave_up.each()));
        }
        count
    }

    /// What else is wrong with the last ones.
    #[cold]
    #[inline(never)]
    fn tell_wrong(&mut self, count: usize, InLine(gave_up): &InLine) {
        for (nth, &gave_up) in gave_up.iter().enumerate().take(count) {
            let row = self.rows.transactions.get(self.rows.transactions.len() - count + nth);
            let last = (row.start_clk + row.clocks - 1, row.end);
            let (perr, serr) = (row.flags.is(Flag::Perr), row.flags.is(Flag::Serr));
            let number = self.numbers - (count - nth) as u64;
            for (is, what) in [(gave_up != 0, What::GaveUp), (perr, What::ParityError), (serr, What::SystemError)] {
                if is {
                    self.problem(last, what, Some(number));
                }
            }
        }
    }
}

/// The number of a clock of each transaction: its stamp, say.
///
/// # Safety
/// These clocks are there, and as for [`Lanes::read`].
#[inline(always)]
unsafe fn numbers_of<L: Lanes>(numbers: &[u64], clocks: L) -> L {
    let bytes = clocks.each().map(|clock| clock as usize * size_of::<u64>());
    // Safety: as the caller says.
    unsafe { L::read(numbers.as_ptr().cast(), &bytes) }
}

/// Writes a field of each transaction.
#[inline(always)]
fn put<L: Lanes, T: Copy>(lane: &mut [T; ROOM], at: usize, values: [T; EIGHT]) {
    lane[at..][..L::COUNT].copy_from_slice(&values[..L::COUNT]);
}
