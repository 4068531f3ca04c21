//! Address and data phases one by one: command, address, data, byte enables, parity.

use super::{At, AwaitsPar, DUAL_ADDRESS_CYCLE, Open, Protocol, State, Watched, reads};
use crate::pci::phases::Run;
use crate::pci::problems::What;
use crate::pci::rows::{DataPhase, Flag, Flags, Termination, Transaction};
use crate::pci::word::Word;
use crate::samples::bits::{Backend, Bit};
use crate::samples::block::{Block, if_data, ones};
use crate::samples::places::Gather;

impl Protocol {
    /// FRAME# asserted on an idle bus (or in the clock after a transaction): the address phase.
    #[inline(always)]
    pub(super) fn address_phase<B: Backend>(&mut self, block: &Block<B>, word: &Word, at: u32) {
        let sample = block.sample(at);
        let layout = &self.layout;
        let before = if layout.grants.is_some() { block.sample_before(at) } else { None };
        let row = self.first_phase::<B>(sample, before, self.at(block, at), word.suspect >> at & 1 != 0);
        let wide = match (block.data(layout.req64), block.data(layout.ack64)) {
            (Some(req64), Some(_)) => req64.get(sample),
            (None, Some(_)) => true,
            (Some(req64), None) => layout.wide && req64.get(sample),
            (None, None) => B::DATA && layout.wide,
        };
        let is_dual = row.command == Some(DUAL_ADDRESS_CYCLE);
        let address_clk = row.start_clk;
        self.open = Some(Open {
            row,
            number: self.numbers,
            address_clk,
            claimed: false,
            answered: false,
            stopped: None,
            claim_unknown: false,
            wide,
            first_parity_ok: None,
            perr: Watched::default(),
            serr: Watched::default(),
        });
        self.numbers += 1;
        self.counts.address += 1;
        self.state = if is_dual { State::Address2 } else { State::Open };
        self.address_parity(block, at);
    }

    /// The row of a transaction as its first clock tells it; `before` is the sample of the clock before that.
    #[inline(always)]
    pub(super) fn first_phase<B: Backend>(
        &self,
        sample: &[u8],
        before: Option<&[u8]>,
        (start_clk, stamp): At,
        suspect: bool,
    ) -> Transaction {
        let layout = &self.layout;
        let known = |unknown: Option<Bit>| if_data::<B, _>(unknown).is_none_or(|bit| !bit.get(sample));
        let mut command = None;
        if let Some(cbe) = if_data::<B, _>(layout.cbe_word.as_ref())
            && known(layout.cbe_unknown)
        {
            command = Some((cbe.get(sample) & 0xf) as u8);
        }
        // Without a known command it may be half of an address.
        let whole = known(layout.ad_unknown) && known(layout.cbe_unknown);
        let address = if_data::<B, _>(layout.ad.as_ref()).filter(|_| whole).map(|ad| ad.get(sample));
        // No closures around what loads samples: they would be calls.
        let mut initiator = None;
        if let Some(grants) = &layout.grants
            && let Some(before) = before
            && if_data::<B, _>(layout.grants_unknown).is_none_or(|bit| !bit.get(before))
        {
            initiator = the_only_one(grants.get(before));
        }
        let idsels = layout.idsels.as_ref().filter(|_| known(layout.idsels_unknown));
        let idsel = idsels.and_then(|idsels| idsel(command, idsels, sample));
        let mut flags = Flags::default();
        flags.tell(Flag::Dac, command.map(|command| command == DUAL_ADDRESS_CYCLE));
        flags.tell(Flag::BytesExact, Some(true));
        flags.tell(Flag::FastBackToBack, Some(self.after_transaction == Some(start_clk)));
        flags.tell(Flag::Suspect, layout.clk.map(|_| suspect));
        Transaction {
            start: stamp,
            end: stamp,
            start_clk,
            clocks: 1,
            command,
            address,
            address_phases: 1,
            data_phases: 0,
            first_data: 0,
            last_data: 0,
            bytes: 0,
            target_wait_clks: 0,
            initiator_wait_clks: 0,
            devsel_clks: None,
            termination: Termination::Unknown,
            initiator,
            flags,
            idsel,
            message: None,
        }
    }

    /// The second clock of a dual address cycle: the real command and the high half of the address.
    #[inline(always)]
    pub(super) fn second_address_phase<B: Backend>(&mut self, block: &Block<B>, word: &Word, at: u32) {
        let sample = block.sample(at);
        let known = |unknown: Option<Bit>| unknown.is_none_or(|bit| !bit.get(sample));
        let layout = &self.layout;
        let command =
            layout.cbe_word.as_ref().filter(|_| known(layout.cbe_unknown)).map(|cbe| (cbe.get(sample) & 0xf) as u8);
        let high = layout.ad.as_ref().filter(|_| known(layout.ad_unknown)).map(|ad| ad.get(sample));
        let address_clk = self.clk + u64::from(at);
        if let Some(open) = &mut self.open {
            let row = &mut open.row;
            row.command = command;
            row.address = row.address.zip(high).map(|(low, high)| low | high << 32);
            row.address_phases = 2;
            open.first_parity_ok = row.flags.get(Flag::AddressParityOk);
            row.flags.tell(Flag::AddressParityOk, None);
            open.address_clk = address_clk;
            row.flags.also(Flag::Suspect, word.suspect >> at & 1 != 0);
        }
        self.counts.address += 1;
        self.state = State::Open;
        self.address_parity(block, at);
    }

    /// PAR of the next clock makes AD[31:0], C/BE[3:0]# and PAR even (PCI 2.2, 3.7.1).
    #[inline(always)]
    pub(super) fn address_parity<B: Backend>(&mut self, block: &Block<B>, at: u32) {
        let (Some(parity), Some(_)) = (block.data(self.layout.parity.as_ref()), self.layout.par) else {
            return;
        };
        let sample = block.sample(at);
        if [self.layout.ad_unknown, self.layout.cbe_unknown].into_iter().flatten().any(|bit| bit.get(sample)) {
            return;
        }
        let odd = parity.is_odd(sample);
        if at + 1 < block.clocks() {
            self.check_par(block.sample(at + 1), AwaitsPar::Address { odd });
        } else {
            self.awaits_par = Some(AwaitsPar::Address { odd });
        }
    }

    #[inline(always)]
    pub(super) fn resolve_par<B: Backend>(&mut self, block: &Block<B>) {
        if let Some(awaited) = block.data(self.awaits_par.take()) {
            self.check_par(block.sample(0), awaited);
        }
    }

    /// `sample` is the clock that carries PAR.
    pub(super) fn check_par(&mut self, sample: &[u8], awaited: AwaitsPar) {
        let Some(par) = self.layout.par else { return };
        let known = |par: Option<Bit>, unknown: Option<Bit>| {
            par.filter(|_| !unknown.is_some_and(|bit| bit.get(sample))).map(|bit| bit.get(sample))
        };
        let par = known(Some(par), self.layout.par_unknown);
        match awaited {
            AwaitsPar::Address { odd } => {
                let (Some(open), Some(par)) = (&mut self.open, par) else { return };
                let ok = odd == par;
                let row = &mut open.row;
                let ok_so_far = match row.address_phases {
                    1 => Some(ok),
                    _ => open.first_parity_ok.map(|first| first && ok),
                };
                row.flags.tell(Flag::AddressParityOk, ok_so_far);
                let (at, number) = ((row.start_clk, row.start), open.number);
                if !ok {
                    self.problem(at, What::AddressParity, Some(number));
                }
            }
            AwaitsPar::Data { odd, odd_high, number, stamp, clk, read } => {
                let even = |odd: Option<bool>, par: Option<bool>| Some(odd? == par?);
                let high = odd_high.map(|odd| even(odd, known(self.layout.par64, self.layout.par64_unknown)));
                let ok = both(even(odd, par), high.unwrap_or(Some(true)));
                if self.want_data_phases && !self.rows.data_phases.is_empty() {
                    self.rows.data_phases.tell_parity(1, ok.is_some().into(), (ok == Some(true)).into());
                }
                if ok == Some(false) {
                    self.problem((clk, stamp), What::DataParity { read }, Some(number));
                }
            }
        }
    }

    /// The rows of the data phases `data`; nothing is said of their parity yet.
    #[inline(always)]
    pub(super) fn list_data_phases<B: Backend>(&mut self, block: &Block<B>, data: u64, wide: u64, number: u64) {
        let layout = &self.layout;
        let disabled = self.beside.disabled[..4].iter().fold(0, |any, lane| any | lane);
        if disabled & data == 0 && wide == 0 && !layout.has_unknown() {
            return self.list_burst(&block.only(data), number);
        }
        for clock in ones(data) {
            let sample = block.sample(clock);
            let is_wide = wide >> clock & 1 != 0;
            let known = |unknown: Option<Bit>| unknown.is_none_or(|bit| !bit.get(sample));
            let low = layout.ad.as_ref().filter(|_| known(layout.ad_unknown)).map(|ad| ad.get(sample));
            let high = layout.ad_high.as_ref().filter(|_| known(layout.ad_high_unknown)).map(|ad| ad.get(sample));
            let lanes = layout.cbe_word.as_ref().filter(|_| known(layout.cbe_unknown)).map(|cbe| cbe.get(sample));
            self.rows.data_phases.push(&DataPhase {
                transaction: number,
                stamp: block.stamp(clock),
                data: if is_wide { low.zip(high).map(|(low, high)| low | high << 32) } else { low },
                byte_enables: match (is_wide, layout.cbe.len()) {
                    (true, 8) => lanes.filter(|_| known(layout.cbe_high_unknown)).map(|lanes| lanes as u8),
                    (true, _) => None,
                    (false, _) => lanes.map(|lanes| (lanes & 0xf) as u8),
                },
                parity_ok: None,
            });
        }
    }

    /// PAR and PAR64 of the next clock belong to each of the data phases `data` (PCI 2.2, 3.7.1 and 3.8).
    #[inline(always)]
    pub(super) fn data_parity<B: Backend>(&mut self, block: &Block<B>, data: u64, wide: u64, number: u64) {
        let layout = &self.layout;
        let (Some(parity), Some(_)) = (block.data(layout.parity.as_ref()), layout.par) else {
            return;
        };
        let odd = block.odd(parity, data);
        if wide == 0 && !layout.has_unknown() {
            self.compare_parity(block, data, number, odd, self.beside.par);
            return;
        }
        let unknown =
            block.maybe(layout.ad_unknown) | block.maybe(layout.cbe_unknown) | block.maybe(layout.par_unknown) >> 1;
        let last = 1 << (block.clocks() - 1);
        let mut known = data & !unknown;
        let mut bad = known & !last & (odd ^ self.beside.par >> 1);
        let (mut odd_high, mut known_high) = (0, 0);
        if let Some((parity, par64)) = layout.parity_high.as_ref().zip(layout.par64).filter(|_| wide != 0) {
            let unknown = block.maybe(layout.ad_high_unknown)
                | block.maybe(layout.cbe_high_unknown)
                | block.maybe(layout.par64_unknown) >> 1;
            odd_high = block.odd(parity, wide);
            known_high = wide & !unknown;
            bad |= known_high & !last & (odd_high ^ block.line(par64) >> 1);
        }
        // What is wrong in one half is wrong; what is right has to be so in both.
        let checked = (known & (!wide | known_high) | bad) & !last;
        self.list_parity::<B>(data, checked, bad);
        let read = self.open.as_ref().and_then(|open| open.row.command).and_then(reads);
        for clock in ones(bad) {
            self.problem(self.at(block, clock), What::DataParity { read }, Some(number));
        }
        known |= known_high;
        if known & last != 0 {
            let clock = block.clocks() - 1;
            let at = |map: u64| map >> clock & 1 != 0;
            let (clk, stamp) = self.at(block, clock);
            let odd = (!at(unknown)).then_some(at(odd));
            let odd_high = at(wide).then_some(at(known_high).then_some(at(odd_high)));
            self.awaits_par = Some(AwaitsPar::Data { odd, odd_high, number, stamp, clk, read });
        }
    }
}

impl Protocol {
    /// The rows of the data phases `data`, which are the last ones, say that their parity was `checked`, and where it was `bad`.
    #[inline(always)]
    fn list_parity<B: Backend>(&mut self, data: u64, checked: u64, bad: u64) {
        if self.want_data_phases {
            // Safety: the backend fits the processor.
            let (known, ok) = unsafe { (B::compress(checked, data), B::compress(checked & !bad, data)) };
            self.rows.data_phases.tell_parity(data.count_ones() as usize, known, ok);
        }
    }

    /// Data phases of 32 bits in all clocks of a block, with all bytes enabled and known: their rows.
    #[inline(always)]
    pub(super) fn list_burst<B: Backend>(&mut self, block: &Block<B>, number: u64) {
        let count = block.clocks() as usize;
        let (mut stamps, mut data) = ([0; 64], [0; 64]);
        block.stamps(&mut stamps);
        let ad = self.layout.ad.as_ref();
        if let Some(ad) = ad {
            block.gather(ad, &mut data);
        }
        self.rows.data_phases.push_run(&Run {
            transaction: number,
            stamps: &stamps[..count],
            data: if ad.is_some() { &data[..count] } else { &[] },
            byte_enables: self.layout.cbe_word.as_ref().map(|_| 0),
        });
    }

    /// The same where all levels are known and only PAR counts: where AD and C/BE# are `odd`, and PAR is asserted.
    #[inline(always)]
    pub(super) fn compare_parity<B: Backend>(&mut self, block: &Block<B>, data: u64, number: u64, odd: u64, par: u64) {
        let last = 1 << (block.clocks() - 1);
        let bad = data & !last & (odd ^ par >> 1);
        self.list_parity::<B>(data, data & !last, bad);
        let read = self.open.as_ref().and_then(|open| open.row.command).and_then(reads);
        for clock in ones(bad) {
            self.problem(self.at(block, clock), What::DataParity { read }, Some(number));
        }
        if data & last != 0 {
            let clock = block.clocks() - 1;
            let (clk, stamp) = self.at(block, clock);
            let odd = Some(odd & last != 0);
            self.awaits_par = Some(AwaitsPar::Data { odd, odd_high: None, number, stamp, clk, read });
        }
    }
}

/// The number of the only bit that is set.
#[inline(always)]
pub(super) fn the_only_one(bits: u64) -> Option<u8> {
    bits.is_power_of_two().then_some(bits.trailing_zeros() as u8)
}

/// The IDSEL line that a configuration access selects.
pub(super) fn idsel(command: Option<u8>, idsels: &Gather, sample: &[u8]) -> Option<u8> {
    matches!(command, Some(0xa | 0xb)).then(|| the_only_one(idsels.get(sample))).flatten()
}

/// Whether two things hold, as far as that is known.
fn both(a: Option<bool>, b: Option<bool>) -> Option<bool> {
    if a == Some(false) || b == Some(false) { Some(false) } else { a.and(b) }
}
