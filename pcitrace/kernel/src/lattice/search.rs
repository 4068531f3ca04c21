//! The search, forwards and backwards.

use super::model::{
    CONTEXTS, Costs, Items, Limits, NONE, Targets, TrackCosts, bin, following, is_end, is_left_over, left_over,
    moved_again, within,
};
use super::shared::{Known, Shared};
use super::states::{Index, State, Track};
use crate::error::Result;
use crate::interrupt;
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::Range;

/// What an item is in its track.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Part {
    Other,
    Only,
    Begins,
    GoesOn,
    Ends,
}

impl Part {
    fn begins(self) -> bool {
        matches!(self, Self::Only | Self::Begins)
    }

    fn ends(self) -> bool {
        matches!(self, Self::Only | Self::Ends)
    }
}

/// The label of an item, and the state that it was given in.
#[derive(Clone, Copy)]
struct Label {
    from: u32,
    target: u32,
    part: Part,
    track: u8,
}

/// A step from one state to the next, by giving an item its label.
#[derive(Clone, Copy)]
struct Step {
    label: Label,
    to: u32,
    cost: f32,
}

/// The result: one value an item in each.
#[derive(Default)]
pub struct Reading {
    /// 0 left over; 1 + 4 t + (0 all of a segment, 1 begins one, 2 goes on, 3 ends one) in track t.
    pub label: Vec<u8>,
    /// The target claimed; -1 for none.
    pub target: Vec<i64>,
    /// Margins: of the track, of where a segment of this target begins, of where one ends, of whose segment it is part;
    /// 0 if they were not asked for.
    pub margins: Vec<[f32; 4]>,
    /// The largest margin that the search could tell, 0 if none was asked for: one that is as large may be larger.
    pub bound: Vec<f32>,
    /// What the reading costs.
    pub cost: f64,
}

/// The nodes of one item: states with their costs from the start of the block, and the label by which each is cheapest.
struct Column {
    states: Vec<State>,
    cost: Vec<f32>,
    label: Vec<Label>,
}

impl Column {
    /// The one node that a block begins with.
    fn of(state: State) -> Self {
        let label = Label { from: NONE, target: NONE, part: Part::Other, track: 0 };
        Self { states: vec![state], cost: vec![0.0], label: vec![label] }
    }

    fn with_capacity(states: usize) -> Self {
        Self { states: Vec::with_capacity(states), cost: Vec::with_capacity(states), label: Vec::with_capacity(states) }
    }
}

/// Finds the cheapest reading of `items`; an error if the work is to end.
pub fn read(items: &Items, targets: &[Targets; 2], costs: &Costs, limits: &Limits) -> Result<Reading> {
    let start = Track { next: 0, claimed: NONE, units: 0, last: NONE, was_cut: false };
    let mut reading = Reading::default();
    let mut column = Column::of(State { tracks: [start; 2], context: 0 });
    let saved = [0, 1].map(|t| saved(&targets[t]));
    let ending = [0, 1].map(|t| Ending::of(&costs.tracks[t]));
    let mut search = Search {
        items,
        targets,
        costs,
        limits,
        steps: Vec::new(),
        ends: Vec::new(),
        columns: Vec::new(),
        index: Index::new(),
        shared: Shared::new(items, targets),
        cap: limits.cost,
        saved,
        ending,
    };
    for item in 0..items.len() {
        interrupt::check()?;
        column = search.advance(item, column);
        let long = search.columns.len() >= limits.items;
        if column.states.len() == 1 || long || item + 1 == items.len() {
            let best = search.settle(&column, item + 1 == items.len(), &mut reading)?;
            column = Column::of(best);
        }
    }
    Ok(reading)
}

/// Costs that differ by less may be the same, added in another order.
const ROUNDING: f32 = 0.01;

/// What a claim costs at least, for comparing states that have dealt with more targets and with fewer.
const CLAIM: f32 = 10.0;

fn saved(targets: &Targets) -> Vec<f32> {
    let mut sum = 0.0;
    let each = targets.skip.iter().map(|skip| {
        sum += skip.min(CLAIM);
        sum
    });
    std::iter::once(0.0).chain(each).collect()
}

/// What ending the segments of one track costs at least, from where one stands.
struct Ending {
    /// The cheapest lag up to each bin: a segment that goes on ends no earlier.
    lag: [Vec<f32>; 2],
    /// The cheapest excess from each entry on: it grows.
    excess: [Vec<f32>; 2],
    /// What it costs at least wherever one stands.
    least: f32,
}

impl Ending {
    fn of(costs: &TrackCosts) -> Self {
        let least = |table: &[f32]| {
            let mut low = f32::INFINITY;
            table
                .iter()
                .map(|cost| {
                    low = low.min(*cost);
                    low
                })
                .collect::<Vec<f32>>()
        };
        let most = |table: &[f32]| {
            let mut back = least(&table.iter().rev().copied().collect::<Vec<f32>>());
            back.reverse();
            back
        };
        let lag = [0, 1].map(|held| least(&costs.lag[held]));
        let mut excess = [0, 1].map(|cut| most(&costs.excess[cut]));
        // One that was never cut may still be.
        for at in 0..excess[0].len().min(excess[1].len()) {
            excess[0][at] = excess[0][at].min(excess[1][at]);
        }
        let lowest = |tables: &[Vec<f32>; 2]| tables.iter().flatten().copied().fold(0.0, f32::min);
        Self { least: lowest(&lag) + lowest(&excess), lag, excess }
    }

    fn at_least(&self, track: &Track, targets: &Targets, zero: i64, lag: impl FnOnce(usize, &[f32]) -> f32) -> f32 {
        if track.units == 0 || track.claimed == NONE {
            return 0.0;
        }
        let target = track.claimed as usize;
        let excess = excess(i64::from(track.units), targets, target).max(0);
        let table = &self.excess[usize::from(track.was_cut)];
        let mut cost = table[((excess + zero) as usize).min(table.len() - 1)];
        if !targets.at_begin {
            cost += lag(target, &self.lag[usize::from(targets.held[target])]);
        }
        cost
    }
}

/// Units by which a segment is longer than its target, or shorter.
fn excess(units: i64, targets: &Targets, target: usize) -> i64 {
    let (least, most) = (i64::from(targets.least[target]), i64::from(targets.most[target]));
    if units < least { units - least } else { (units - most).max(0) }
}

struct Search<'a> {
    items: &'a Items,
    targets: &'a [Targets; 2],
    costs: &'a Costs,
    limits: &'a Limits,
    /// Steps of the block, and where those of each item end; if margins are asked for.
    steps: Vec<Step>,
    ends: Vec<usize>,
    /// The columns of the block before each of its items, without their states.
    columns: Vec<Column>,
    /// Where each state after the item under way is in its column.
    index: Index,
    shared: Shared,
    /// The largest margin that can be told in this block.
    cap: f32,
    /// What a state has saved that has dealt with so many targets of a track, against one that will have to.
    saved: [Vec<f32>; 2],
    /// What ending an open segment costs at least.
    ending: [Ending; 2],
}

impl Search<'_> {
    /// Gives one more item every label that it may have.
    fn advance(&mut self, item: usize, before: Column) -> Column {
        self.index.clear();
        let mut next = Column::with_capacity(4 * before.states.len());
        let first = self.steps.len();
        let mut bound = f32::INFINITY;
        for (from, (state, base)) in before.states.iter().zip(&before.cost).enumerate() {
            let tried = Tried::of(self, item, *state);
            let mut out = Out {
                from: from as u32,
                base: *base,
                next: &mut next,
                index: &mut self.index,
                steps: self.limits.margins.then_some(&mut self.steps),
                shared: &mut self.shared,
                bound,
                saved: [&self.saved[0], &self.saved[1]],
            };
            tried.label(&mut out);
            if from == 0 && !self.limits.margins {
                // The best state goes first, and what it leads to bounds the others. Not with margins: there even a much
                // dearer step counts, if it leads where a cheap one does.
                let best = self.ranks(item, &next).into_iter().fold(f32::INFINITY, f32::min);
                bound = best + self.limits.cost - self.ending.iter().map(|ending| ending.least).sum::<f32>() + ROUNDING;
            }
        }
        let ranks = self.ranks(item, &next);
        let (column, place, lost) = next.pruned(self.limits, &ranks);
        self.cap = self.cap.min(lost);
        if self.limits.margins {
            let mut kept = first;
            for at in first..self.steps.len() {
                let to = place[self.steps[at].to as usize];
                if to != NONE {
                    self.steps[kept] = Step { to, ..self.steps[at] };
                    kept += 1;
                }
            }
            self.steps.truncate(kept);
            self.ends.push(kept);
        }
        self.columns.push(Column { states: Vec::new(), ..before });
        column
    }

    /// What the states of a column are compared by: their costs, with what is still to be paid at the least.
    fn ranks(&mut self, item: usize, column: &Column) -> Vec<f32> {
        let now_us = self.items.end_us[item];
        let known = &mut self.shared.ahead;
        let mut ahead = |state: &State| -> f32 {
            (0..2)
                .map(|t| {
                    let (track, targets) = (&state.tracks[t], &self.targets[t]);
                    let zero = self.costs.tracks[t].excess_zero;
                    let lag = |target: usize, table: &[f32]| {
                        known[t].get(target, item, || table[bin(targets.time_us[target] - now_us)])
                    };
                    self.ending[t].at_least(track, targets, zero, lag) - self.saved[t][track.next as usize]
                })
                .sum()
        };
        column.states.iter().zip(&column.cost).map(|(state, cost)| cost + ahead(state)).collect()
    }

    /// Ends a block: the best way through it, the margins in it. Returns the state it ends in.
    fn settle(&mut self, last: &Column, end: bool, reading: &mut Reading) -> Result<State> {
        let left = |state: &State| -> f32 {
            let open = |track: &Track| if track.units > 0 { 2.0 } else { 0.0 };
            let skips = |track: &Track, targets: &Targets| targets.skip.iter().skip(track.next as usize).sum::<f32>();
            (0..2).map(|t| open(&state.tracks[t]) + skips(&state.tracks[t], &self.targets[t])).sum()
        };
        let behind: Vec<f32> = last.states.iter().map(|state| if end { left(state) } else { 0.0 }).collect();
        let total = |node: usize| last.cost[node] + behind[node];
        let best = (0..last.states.len()).min_by(|a, b| total(*a).total_cmp(&total(*b))).unwrap_or(0);
        let (cost, state) = (total(best), last.states[best]);
        reading.cost += f64::from(cost);
        let way = self.way(last, best);
        reading.label.extend(way.iter().map(|label| label.code()));
        reading.target.extend(way.iter().map(|label| if label.target == NONE { -1 } else { i64::from(label.target) }));
        let before = reading.margins.len();
        reading.bound.resize(before + way.len(), if self.limits.margins { self.cap } else { 0.0 });
        reading.margins.resize(before + way.len(), [0.0; 4]);
        if self.limits.margins {
            self.margins(&way, cost, behind, &mut reading.margins[before..])?;
        }
        self.columns.clear();
        self.steps.clear();
        self.ends.clear();
        self.cap = self.limits.cost;
        Ok(state)
    }

    /// The labels of the block by which a node of its last column is cheapest.
    fn way(&self, last: &Column, node: usize) -> Vec<Label> {
        let mut way = vec![last.label[node]];
        for column in self.columns[1..].iter().rev() {
            let behind = way[way.len() - 1];
            way.push(column.label[behind.from as usize]);
        }
        way.reverse();
        way
    }

    /// How much more the cheapest way costs in which the label of an item differs.
    fn margins(&self, way: &[Label], cost: f32, mut behind: Vec<f32>, out: &mut [[f32; 4]]) -> Result<()> {
        for (at, (chosen, margins)) in way.iter().zip(out).enumerate().rev() {
            interrupt::check()?;
            let forward = &self.columns[at].cost;
            let mut earlier = vec![f32::INFINITY; forward.len()];
            *margins = [self.cap; 4];
            for Step { label, to, cost: each } in
                &self.steps[if at == 0 { 0 } else { self.ends[at - 1] }..self.ends[at]]
            {
                let from = label.from as usize;
                let rest = each + behind[*to as usize];
                let more = (forward[from] + each + behind[*to as usize] - cost).max(0.0);
                for (margin, differs) in margins.iter_mut().zip(differences(chosen, label)) {
                    if differs {
                        *margin = margin.min(more);
                    }
                }
                earlier[from] = earlier[from].min(rest);
            }
            behind = earlier;
        }
        Ok(())
    }
}

impl Label {
    /// As in [`Reading`].
    fn code(&self) -> u8 {
        if self.part == Part::Other { 0 } else { 4 * self.track + self.part as u8 }
    }
}

/// In what two labels of one item differ: the track, a beginning, an end, the target.
fn differences(a: &Label, b: &Label) -> [bool; 4] {
    let kind = |label: &Label| (label.part != Part::Other).then_some(label.track);
    let whose = |label: &Label, is: fn(Part) -> bool| is(label.part).then_some((label.track, label.target));
    [
        kind(a) != kind(b),
        whose(a, Part::begins) != whose(b, Part::begins),
        whose(a, Part::ends) != whose(b, Part::ends),
        whose(a, |part| part != Part::Other) != whose(b, |part| part != Part::Other),
    ]
}

/// Where the steps out of one state go.
struct Out<'a> {
    from: u32,
    base: f32,
    next: &'a mut Column,
    index: &'a mut Index,
    /// If margins are asked for.
    steps: Option<&'a mut Vec<Step>>,
    shared: &'a mut Shared,
    /// What is dearer at the least is not looked at: it would be left out.
    bound: f32,
    saved: [&'a [f32]; 2],
}

impl Out<'_> {
    /// What a step may cost that leads to a state with these targets next; nothing infinite is in it.
    fn affordable(&self, next: [u32; 2]) -> Range<f32> {
        f32::MIN..self.bound + self.saved[0][next[0] as usize] + self.saved[1][next[1] as usize] - self.base
    }

    fn push(&mut self, state: State, cost: f32, part: Part, track: usize, target: u32) {
        let whole = self.base + cost;
        let label = Label { from: self.from, target, part, track: track as u8 };
        let to = self.index.place(&mut self.next.states, state);
        self.next.reach(to as usize, whole, label);
        if let Some(steps) = &mut self.steps {
            steps.push(Step { label, to, cost });
        }
    }
}

impl Column {
    /// Notes that a node can be reached at such a cost, by such a label.
    fn reach(&mut self, node: usize, cost: f32, label: Label) {
        if node == self.cost.len() {
            self.cost.push(cost);
            self.label.push(label);
        } else if cost < self.cost[node] {
            (self.cost[node], self.label[node]) = (cost, label);
        }
    }

    /// Keeps the best states by their ranks, the best of them first. Returns them, where each state went, NONE for those
    /// that were left out, and how much more the best of these costs.
    fn pruned(self, limits: &Limits, rank: &[f32]) -> (Self, Vec<u32>, f32) {
        let best = rank.iter().copied().fold(f32::INFINITY, f32::min);
        // As whole numbers, for they are sorted: the rank above, the place below.
        let mut order: Vec<u64> = (0..self.states.len())
            .filter(|&at| rank[at] <= best + limits.cost)
            .map(|at| u64::from(ordered(rank[at])) << 32 | at as u64)
            .collect();
        let place_of = |one: u64| one as u32 as usize;
        let mut lost = limits.cost;
        if order.len() > limits.states {
            order.select_nth_unstable(limits.states);
            let rest = order.split_off(limits.states);
            order.sort_unstable();
            let (kept, left) = self.farthest(&order, rest, limits.states);
            order.extend(kept);
            lost = left.map_or(lost, |one| rank[place_of(one)] - best);
        } else {
            order.sort_unstable();
        }
        let mut place = vec![NONE; self.states.len()];
        for (to, &one) in order.iter().enumerate() {
            place[place_of(one)] = to as u32;
        }
        let kept = || order.iter().map(|&one| place_of(one));
        let column = Self {
            states: kept().map(|at| self.states[at]).collect(),
            cost: kept().map(|at| self.cost[at]).collect(),
            label: kept().map(|at| self.label[at]).collect(),
        };
        (column, place, lost)
    }

    /// Of the rest that is dearer than the best so many: the best that has come as far, with the same open, as none of
    /// these, for what was put off is paid by all some time; no more of them than of these. And the best of the others.
    fn farthest(&self, best: &[u64], rest: Vec<u64>, most: usize) -> (Vec<u64>, Option<u64>) {
        let reached = |one: u64| self.states[one as u32 as usize].reached();
        let seen: FxHashSet<_> = best.iter().map(|&one| reached(one)).collect();
        let mut first = FxHashMap::default();
        for &one in &rest {
            let far = reached(one);
            if !seen.contains(&far) {
                first.entry(far).and_modify(|least: &mut u64| *least = one.min(*least)).or_insert(one);
            }
        }
        let mut kept: Vec<u64> = first.into_values().collect();
        kept.sort_unstable();
        kept.truncate((2 * most).saturating_sub(seen.len()));
        let mut left = u64::MAX;
        for one in rest {
            if one < left && kept.binary_search(&one).is_err() {
                left = one;
            }
        }
        (kept, (left < u64::MAX).then_some(left))
    }
}

/// A number that is the larger the larger a cost is.
fn ordered(cost: f32) -> u32 {
    let bits = cost.to_bits();
    if bits >> 31 == 0 { bits | 1 << 31 } else { !bits }
}

fn entry(table: &[f32], units: u32) -> f32 {
    table[(units as usize).min(table.len() - 1)]
}

/// A state in which an item is given every label that it may have.
struct Tried<'a> {
    items: &'a Items,
    targets: &'a [Targets; 2],
    costs: &'a Costs,
    limits: &'a Limits,
    item: usize,
    /// Targets that are out of reach were skipped in it, which cost so much.
    state: State,
    passed: f32,
    /// What it costs that the item begins where the open segment of each track ended, and is no part of it; and where the
    /// item before did.
    apart: [f32; 2],
    behind: f32,
}

impl<'a> Tried<'a> {
    fn of(search: &Search<'a>, item: usize, mut state: State) -> Self {
        let Search { items, targets, costs, limits, .. } = *search;
        let mut passed = 0.0;
        for (track, targets) in state.tracks.iter_mut().zip(targets) {
            // A target that segments come before is out of reach once its time has passed.
            let is_out = |us: &f64| *us < items.begin_us[item];
            while !targets.after && targets.time_us.get(track.next as usize).is_some_and(is_out) {
                passed += targets.skip[track.next as usize];
                track.next += 1;
            }
        }
        let where_ended = |before: usize| if joins(items, before, item) { costs.apart } else { 0.0 };
        let apart = state.tracks.map(|track| if track.units > 0 { where_ended(track.last as usize) } else { 0.0 });
        let behind = if item > 0 { where_ended(item - 1) } else { 0.0 };
        Self { items, targets, costs, limits, item, state, passed, apart, behind }
    }

    /// Gives the item every label.
    fn label(&self, out: &mut Out<'_>) {
        self.left_over(out);
        // Each by itself: compiled for one track they take less time.
        self.in_track(0, out);
        self.in_track(1, out);
    }

    #[inline(always)]
    fn left_over(&self, out: &mut Out<'_>) {
        let Self { items, costs, item, state, .. } = *self;
        let (context, alone) = (state.context as usize, &items.alone[item]);
        let cost = self.passed
            + self.apart[0]
            + self.apart[1]
            + if is_end(state.context) { self.behind } else { 0.0 }
            + alone[0]
            + self.follows()[0]
            + out.shared.other.get(context, item, || {
                let sizes = &costs.other_units[context];
                let at = 2 * (items.units[item] as usize).min(sizes.len() / 2 - 1);
                let kind = |kind: usize| {
                    sizes[at + kind] + alone[7 + kind] + self.paused(&costs.other[context][kind]).min(alone[9 + kind])
                };
                kind(0).min(kind(1))
            });
        if out.affordable(state.tracks.map(|track| track.next)).contains(&cost) {
            out.push(State { context: left_over(state.context, items.cut[item]), ..state }, cost, Part::Other, 0, NONE);
        }
    }

    /// Lets the item be of a segment of a track: one that is open, or one that begins.
    #[inline(always)]
    fn in_track(&self, t: usize, out: &mut Out<'_>) {
        if self.state.tracks[t].units > 0 { self.going_on(t, out) } else { self.beginning(t, out) }
    }

    #[inline(always)]
    fn going_on(&self, t: usize, out: &mut Out<'_>) {
        let Self { items, targets, costs, item, state, .. } = *self;
        let (track, mine) = (state.tracks[t], &costs.tracks[t]);
        let last = track.last as usize;
        let cut = usize::from(items.cut[last]);
        let since_us = items.end_us[last];
        let (place, added) = going_on(items, costs, t, targets[t].again, &track, item);
        let resumes = last + 1 < item;
        let table = if resumes { &mine.resumes[cut] } else { &mine.goes_on[cut] };
        let (begin_us, ready_us) = (items.begin_us[item], items.ready_us[item].max(since_us));
        let mut told =
            out.shared.goes_on[t].get(last, item, || within(table, ready_us - since_us, begin_us - since_us));
        if resumes {
            told += out.shared.after_others[t].get(0, item, || self.paused(&mine.after_others));
        }
        let cost = self.passed
            + self.apart[1 - t]
            + if is_left_over(state.context) { self.behind } else { 0.0 }
            + items.alone[item][1 + t]
            + self.follows()[3 + t]
            + told
            + sized(items, mine, costs.apart, track, item)
            + place;
        let units = (i64::from(track.units) + added).max(1) as u32;
        let was_cut = track.was_cut || items.cut[last];
        self.part(t, Track { units, last: item as u32, was_cut, ..track }, cost, out);
    }

    #[inline(always)]
    fn beginning(&self, t: usize, out: &mut Out<'_>) {
        let Self { items, targets, costs, item, state, .. } = *self;
        let (track, mine, goals) = (state.tracks[t], &costs.tracks[t], &targets[t]);
        let (alone, context) = (&items.alone[item], state.context as usize);
        let cost = self.passed + self.apart[1 - t] + alone[1 + t] + alone[3 + t] + self.follows()[1 + t];
        let paused = cost + out.shared.begins[t].get(context, item, || self.paused(&mine.begins[context]));
        let open = Track { units: items.units[item], last: item as u32, was_cut: false, claimed: NONE, ..track };
        self.part(t, open, paused + alone[5 + t], out);
        let mut skipped = 0.0;
        for target in track.next as usize..goals.time_us.len() {
            if skipped > self.limits.cost || (goals.after && goals.time_us[target] > items.begin_us[item] + 1.0) {
                break;
            }
            let mut told = skipped + paused;
            if goals.at_begin {
                let held = held(items, goals, target, track.last);
                let number = 2 * target + held;
                let shared = &mut *out.shared;
                let lag = |known: &mut Known, table: &[Vec<f32>; 2]| {
                    known.get(number, item, || lag(items, goals, &table[held], target, item))
                };
                let by_lag = lag(&mut shared.lag[t], &mine.lag);
                if goals.after {
                    // When it begins is told by its target, or by what was before it.
                    let by_pause = paused + lag(&mut shared.claims[t], &mine.claims);
                    told = skipped + (cost + by_lag).min(by_pause);
                } else {
                    told += by_lag;
                }
            }
            self.part(t, Track { claimed: target as u32, next: target as u32 + 1, ..open }, told, out);
            skipped += goals.skip[target];
        }
    }

    /// Lets a segment stay open after the item, or end with it.
    #[inline(always)]
    fn part(&self, t: usize, track: Track, cost: f32, out: &mut Out<'_>) {
        let Self { items, targets, costs, item, mut state, .. } = *self;
        let begins = track.last == item as u32 && state.tracks[t].units == 0;
        state.tracks[t] = track;
        let affordable = out.affordable(state.tracks.map(|track| track.next));
        let (mine, goals) = (&costs.tracks[t], &targets[t]);
        let claims = track.claimed != NONE;
        let most = if claims { goals.most[track.claimed as usize] } else { NONE / 2 };
        let reach = mine.excess[1].len() as u32;
        if track.units < most + reach && affordable.contains(&cost) {
            state.context = 1 + 2 * t as u8;
            out.push(state, cost, if begins { Part::Begins } else { Part::GoesOn }, t, track.claimed);
        }
        let mut ended = cost + items.alone[item][11 + t];
        if claims {
            let target = track.claimed as usize;
            let excess = excess(i64::from(track.units), goals, target);
            let table = &mine.excess[usize::from(track.was_cut)];
            ended += usize::try_from(excess + mine.excess_zero)
                .ok()
                .and_then(|at| table.get(at))
                .copied()
                .unwrap_or(f32::INFINITY);
            if !goals.at_begin {
                let held = held(items, goals, target, NONE);
                ended += out.shared.ends[t]
                    .get(2 * target + held, item, || lag(items, goals, &mine.lag[held], target, item));
            }
            let past_us = goals.bound_us[target] - items.end_us[item];
            if if goals.after { past_us > 0.0 } else { past_us < 0.0 } {
                ended += goals.beyond;
            }
        } else {
            ended += entry(&mine.unclaimed, track.units);
        }
        if !affordable.contains(&ended) {
            return;
        }
        state.tracks[t] = Track { units: 0, claimed: NONE, was_cut: false, ..track };
        state.context = 2 + 2 * t as u8;
        debug_assert!((state.context as usize) < CONTEXTS);
        out.push(state, ended, if begins { Part::Only } else { Part::Ends }, t, track.claimed);
    }

    /// What comes after what was before the item.
    fn follows(&self) -> &[f32; 5] {
        &self.costs.follows[following(self.state.context, self.state.tracks.map(|track| track.units > 0))]
    }

    /// What the pause before the item costs by a table.
    fn paused(&self, table: &[f32]) -> f32 {
        let Self { items, item, .. } = *self;
        if item == 0 {
            return 0.0;
        }
        let since_us = items.end_us[item - 1];
        within(table, items.ready_us[item] - since_us, items.begin_us[item] - since_us)
    }
}

/// Whether an item begins in memory where another ended.
fn joins(items: &Items, before: usize, item: usize) -> bool {
    items.place[item] >= 0 && items.next_place[before] == items.place[item]
}

/// What the size of the item before costs one that goes on with its segment.
///
/// The last one's size is what is left of the segment, and the first one's may be what is left of a line. Where the last
/// units come one by one, it is the one before these that has what is left: the first of them costs what a single one does
/// instead. Nothing larger comes behind these, unless they end the first of two buffers.
fn sized(items: &Items, mine: &TrackCosts, apart: f32, track: Track, item: usize) -> f32 {
    let (cut, units) = (items.cut[track.last as usize], items.units[track.last as usize]);
    match (mine.singles && !cut, units > 1, items.units[item] > 1) {
        (true, true, false) => entry(&mine.middle[0], 1),
        (true, false, true) => entry(&mine.middle[0], units) + if track.units == mine.header { 0.0 } else { apart },
        _ if cut => entry(&mine.middle[1], units),
        _ => entry(&mine.middle[if track.units == units { 2 } else { 0 }], units),
    }
}

/// What it costs that an item goes on where another ended, and how many units it adds.
fn going_on(items: &Items, costs: &Costs, t: usize, again: u32, track: &Track, item: usize) -> (f32, i64) {
    let last = track.last as usize;
    let units = i64::from(items.units[item]);
    let (expected, place) = (items.next_place[last], items.place[item]);
    if expected < 0 || place < 0 {
        let moved = if items.cut[last] { moved_again(track.units, items.units[last], again) } else { 0 };
        return (0.0, units - i64::from(moved));
    }
    let places = &costs.tracks[t].places;
    match expected - place {
        0 => (places[0], units),
        back if back > 0 && back <= costs.back => (places[1], units - back / costs.unit),
        _ if i64::from(track.units) * costs.unit < costs.joined => (places[2] + costs.apart, units),
        _ => (places[2], units),
    }
}

/// Which of its two tables the lag of a target goes by, where the last item of the track is known.
fn held(items: &Items, targets: &Targets, target: usize, last: u32) -> usize {
    let busy = targets.after && last != NONE && items.end_us[last as usize] > targets.time_us[target];
    usize::from(targets.held[target] || busy)
}

/// The cost of the time between a segment and its target.
fn lag(items: &Items, targets: &Targets, table: &[f32], target: usize, item: usize) -> f32 {
    let time_us = targets.time_us[target];
    if targets.after {
        let begin_us = items.begin_us[item];
        return within(table, items.ready_us[item] - time_us, begin_us - time_us);
    }
    let at_us = if targets.at_begin { items.begin_us[item] } else { items.end_us[item] };
    table[bin(time_us - at_us)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_ordered_as_they_are_large() {
        let costs = [f32::NEG_INFINITY, -40.5, -1.0, -1e-9, 0.0, 1e-9, 1.0, 40.5, f32::INFINITY];
        assert!(costs.map(ordered).is_sorted_by(|a, b| a < b));
    }
}
