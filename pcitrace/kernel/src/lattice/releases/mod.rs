//! Segments of items that release targets: each ends before the targets that it releases, in their order.
//!
//! Another reading of a sequence than `search`: one segment may release several targets, and what a segment costs
//! depends on all of its items. A node is how many items were read and how many targets were dealt with.

mod layers;
mod margins;

use super::model::{NONE, within};
use crate::error::Result;
use crate::interrupt;
use layers::{Behind, Node, Open, Ring, Step};
use margins::Margins;
use std::ops::Range;

/// Places of an item in its segment that costs tell apart, counted from the last.
pub const PLACES: usize = 4;

/// Most items of a segment, and targets that it releases: a step has two bytes for each.
pub const LONGEST: usize = u16::MAX as usize;

/// Costs that differ by less may be the same, added in another order.
const ROUNDING: f64 = 1e-6;

/// The sequence.
#[derive(Default)]
pub struct Items {
    pub time_us: Vec<f64>,
    /// Cost of being in no segment.
    pub other: Vec<f32>,
    /// The same where all targets are dealt with: it may be in the segment of one that is not there.
    pub beyond: Vec<f32>,
    /// Cost by place in a segment: last, one before, two before, earlier.
    pub place: Vec<[f32; PLACES]>,
    /// Cost of going on with the segment of the item before.
    pub joins: Vec<f32>,
    /// How many targets a segment that ends here releases; 0 if nothing says so.
    pub count: Vec<u32>,
    /// What names a target; 0 for none.
    pub key: Vec<u64>,
}

/// What is released, in order of time.
#[derive(Default)]
pub struct Targets {
    /// When it happened, and when it could have at the earliest, had nothing been in its way.
    pub time_us: Vec<f64>,
    pub ready_us: Vec<f64>,
    /// When the target before was done with: what is released sooner waits.
    pub free_us: Vec<f64>,
    /// Cost of when it happened, where it waited for the target before.
    pub waited: Vec<f32>,
    /// Cost of not being released by anything.
    pub skip: Vec<f32>,
    pub key: Vec<u64>,
}

/// All other costs.
#[derive(Default)]
pub struct Costs {
    /// Time from the end of a segment to its first target, over bins, where that did not wait.
    pub lag: Vec<f32>,
    /// By targets released (rows) and items in the segment.
    pub shape: Vec<Vec<f32>>,
    /// A segment has the key of its target, or another one.
    pub keys: [f32; 2],
    /// A segment releases another number than `count` says.
    pub miscount: f32,
    /// Each target that was released before the first item.
    pub before: f32,
}

/// Bounds of the work: nodes an item; how much more than the best a node may cost, which no margin exceeds.
pub struct Limits {
    pub nodes: usize,
    pub cost: f64,
    /// Whether margins are asked for. Without them the reading is the same, and found in half of the time.
    pub margins: bool,
}

/// First and last item of the segment that releases each target, NONE if none does, and how sure either is; margins are 0
/// if they were not asked for.
#[derive(Default)]
pub struct Released {
    pub first: Vec<u32>,
    pub last: Vec<u32>,
    pub margins: Vec<[f32; 2]>,
    /// Of each item: how much more the best reading costs in which it is something else.
    pub item: Vec<f32>,
    pub cost: f64,
}

/// What the segments that begin with an item cost, in steps from coarse to fine.
struct Begun {
    /// Their items, by how many.
    items: Vec<f64>,
    /// The same items at the most, if they are left over.
    left: Vec<f64>,
    /// The targets behind the first that a node releases, by how many; and how much more than at the least.
    follow: Vec<f64>,
    dearer: Vec<f64>,
    /// All of a segment, by how many targets it releases.
    whole: Vec<f64>,
    /// Lags that were looked up, with their last items: those of many segments end at the same one.
    lags: Ring<Vec<(u32, f64)>>,
}

struct Search<'a> {
    items: &'a Items,
    targets: &'a Targets,
    costs: &'a Costs,
    limits: &'a Limits,
    /// Costs of shapes by items (rows) and targets, and the least of each row.
    shapes: Vec<(Vec<f64>, f64)>,
    /// What the targets from each on cost at the least, whatever releases them.
    ahead: Vec<f64>,
    /// How many targets happened before each item; none of them is released by it. And what skipping so many costs.
    passed: Vec<usize>,
    skipped: Vec<f64>,
    layers: Vec<Vec<Node>>,
}

/// Finds the cheapest reading; an error if the work is to end.
pub fn read(items: &Items, targets: &Targets, costs: &Costs, limits: &Limits) -> Result<Released> {
    let mut search = Search::new(items, targets, costs, limits);
    search.forwards()?;
    search.backwards()
}

impl<'a> Search<'a> {
    fn new(items: &'a Items, targets: &'a Targets, costs: &'a Costs, limits: &'a Limits) -> Self {
        let (longest, largest) = (costs.shape.first().map_or(0, Vec::len), costs.shape.len());
        let widest = items.count.iter().map(|count| *count as usize).max().unwrap_or(0).clamp(largest, LONGEST);
        let shape = |length: usize| {
            let row: Vec<f64> =
                (0..widest).map(|count| f64::from(costs.shape[count.min(largest - 1)][length])).collect();
            let least = row.iter().copied().fold(f64::INFINITY, f64::min);
            (row, least)
        };
        let at_once = costs.lag.iter().copied().fold(f32::INFINITY, f32::min);
        let mut ahead = vec![0.0; targets.waited.len() + 1];
        for (target, waited) in targets.waited.iter().enumerate().rev() {
            ahead[target] = ahead[target + 1] + f64::from(waited.min(at_once));
        }
        let mut skipped = vec![0.0; targets.skip.len() + 1];
        for (target, skip) in targets.skip.iter().enumerate() {
            skipped[target + 1] = skipped[target] + f64::from(*skip);
        }
        let passed = items.time_us.iter().map(|now| targets.time_us.partition_point(|us| us < now));
        let passed = passed.chain([targets.time_us.len()]).collect();
        let shapes = (0..longest).map(shape).collect();
        Self { items, targets, costs, limits, shapes, ahead, passed, skipped, layers: Vec::new() }
    }

    fn forwards(&mut self) -> Result<()> {
        let (count, targets) = (self.items.time_us.len(), self.targets.time_us.len());
        let mut open = Ring::new(self.shapes.len(), || Open::new(targets));
        let most = (targets - self.passed[0]).min(self.limits.nodes);
        let mut cost = 0.0;
        for dealt in self.passed[0]..=self.passed[0] + most {
            open.at(0).arrive(dealt, &[cost], 0.0, Step::default(), &self.ahead);
            // What was queued before the first item follows what went before it.
            let waited = self.targets.waited.get(dealt).copied().unwrap_or_default();
            cost += f64::from(self.costs.before + waited);
        }
        let mut begun = self.begun();
        for at in 0..count {
            interrupt::check()?;
            let nodes = open.at(at).close(&self.ahead, self.limits);
            self.begin(at, &mut begun);
            let least = nodes.first().map_or(f64::INFINITY, |best| best.cost + self.ahead[best.dealt as usize]);
            // What is dearer by too much than the best way on which all its items are left over is left out there.
            let most = |length: usize| begun.left[length - 1] + ROUNDING + self.limits.cost;
            let cheapest = |length: usize| begun.items[length - 1] + self.shapes[length - 1].1;
            let affordable: Vec<usize> =
                (1..=begun.items.len()).filter(|length| cheapest(*length) <= most(*length)).collect();
            for (number, node) in nodes.iter().enumerate() {
                let (other, step) = (self.left_over(at, node), Step::new(number, 1, 0));
                self.arrive(open.at(at + 1), at + 1, node.dealt as usize, &[other], node.cost, step);
                let longest = self.longest(at, node, &begun);
                if !affordable.is_empty() {
                    self.follow(node, &mut begun);
                }
                for length in affordable.iter().copied().take_while(|length| *length <= longest) {
                    let next = open.at(at + length);
                    let best = next.least.min(least + begun.left[length - 1] + ROUNDING);
                    if !self.segment(at, length, node, best, &mut begun) {
                        continue;
                    }
                    let step = Step::new(number, length, 1);
                    self.arrive(next, at + length, node.dealt as usize + 1, &begun.whole, node.cost, step);
                }
            }
            self.layers.push(nodes);
        }
        self.layers.push(open.at(count).close(&self.ahead, self.limits));
        Ok(())
    }

    /// What it costs that an item is left over.
    fn left_over(&self, at: usize, node: &Node) -> f64 {
        let all = node.dealt as usize == self.targets.time_us.len();
        f64::from(if all { self.items.beyond[at] } else { self.items.other[at] })
    }

    /// Comes to a layer, where what was not released by the time of its item never is.
    fn arrive(&self, next: &mut Open, to: usize, dealt: usize, costs: &[f64], before: f64, step: Step) {
        let passed = self.passed[to];
        let few = passed.saturating_sub(dealt).min(costs.len());
        for (more, cost) in costs[..few].iter().enumerate() {
            let skipped = self.skipped[passed] - self.skipped[dealt + more];
            next.arrive(passed, &[cost + skipped], before, step.with_more(more), &self.ahead);
        }
        next.arrive(dealt + few, &costs[few..], before, step.with_more(few), &self.ahead);
    }

    fn begun(&self) -> Begun {
        let lags = Ring::new(self.shapes.len(), || vec![(NONE, 0.0); self.targets.time_us.len()]);
        Begun { items: Vec::new(), left: Vec::new(), follow: Vec::new(), dearer: Vec::new(), whole: Vec::new(), lags }
    }

    /// What the items of the segments that begin with an item cost.
    fn begin(&self, at: usize, begun: &mut Begun) {
        begun.items.clear();
        begun.left.clear();
        let most = self.shapes.len().min(self.items.time_us.len() - at);
        let (mut joined, mut left) = (0.0, 0.0);
        for last in at..at + most {
            joined += if last > at { f64::from(self.items.joins[last]) } else { 0.0 };
            if joined > self.limits.cost {
                break;
            }
            let places: f64 =
                (at..=last).map(|item| f64::from(self.items.place[item][(last - item).min(PLACES - 1)])).sum();
            begun.items.push(joined + places);
            left += f64::from(self.items.other[last].max(self.items.beyond[last]));
            left += self.skipping(self.passed[last]..self.passed[last + 1]);
            begun.left.push(left);
        }
    }

    /// How much more it costs at the most that targets are skipped.
    fn skipping(&self, targets: Range<usize>) -> f64 {
        let more = |target: usize| f64::from(self.targets.skip[target]) + self.ahead[target + 1] - self.ahead[target];
        targets.map(|target| more(target).max(0.0)).sum()
    }

    /// How many items the segments from a node on may have: each ends before its first target.
    fn longest(&self, at: usize, node: &Node, begun: &Begun) -> usize {
        let Some(target) = self.targets.time_us.get(node.dealt as usize) else { return 0 };
        self.items.time_us[at..at + begun.items.len()].partition_point(|us| us <= target)
    }

    /// Works out what the targets behind the first of a node cost.
    fn follow(&self, node: &Node, begun: &mut Begun) {
        let behind = node.dealt as usize + 1;
        let widest = self.shapes.first().map_or(1, |shape| shape.0.len());
        begun.follow.clear();
        begun.dearer.clear();
        begun.follow.push(0.0);
        begun.dearer.push(0.0);
        let mut followed = 0.0;
        for (target, waited) in self.targets.waited.iter().enumerate().skip(behind).take(widest - 1) {
            followed += f64::from(*waited);
            if followed > 2.0 * self.limits.cost {
                break;
            }
            begun.follow.push(followed);
            begun.dearer.push(followed + self.ahead[target + 1] - self.ahead[behind]);
        }
    }

    /// Works out what a segment costs, by how many targets it releases; not if each way with it costs too much.
    fn segment(&self, at: usize, length: usize, node: &Node, best: f64, begun: &mut Begun) -> bool {
        begun.whole.clear();
        let (last, dealt) = (at + length - 1, node.dealt as usize);
        let (shape, least) = &self.shapes[length - 1];
        let most = best + self.limits.cost - node.cost - least - self.ahead[dealt + 1];
        if begun.items[length - 1] + self.ahead[dealt] - self.ahead[dealt + 1] > most {
            return false;
        }
        let known = &mut begun.lags.at(last)[dealt];
        if known.0 != last as u32 {
            *known = (last as u32, self.lag(last, dealt));
        }
        let base = begun.items[length - 1] + known.1;
        if base > most {
            return false;
        }
        let stated = self.items.count[last] as usize;
        let affordable = begun.dearer.partition_point(|more| base + more <= most + ROUNDING);
        let counts = self.costs.shape.len().max(stated).min(affordable);
        begun.whole.extend(begun.follow.iter().zip(shape).take(counts).map(|(follow, shape)| base + follow + shape));
        if stated > 0 {
            let other = (1..).zip(&mut begun.whole).filter(|(count, _)| *count != stated);
            other.for_each(|(_, cost)| *cost += f64::from(self.costs.miscount));
        }
        if self.costs.keys[0] != self.costs.keys[1] {
            let mut named = 0.0;
            for (target, cost) in (dealt..).zip(&mut begun.whole) {
                named += self.named(at, last, target);
                *cost += named;
            }
        }
        true
    }

    fn lag(&self, last: usize, target: usize) -> f64 {
        let now = self.items.time_us[last];
        let waited = self.targets.free_us[target] > now;
        let ready_us = (self.targets.ready_us[target] - now).max(0.0);
        let at_once = within(&self.costs.lag, ready_us, self.targets.time_us[target] - now);
        f64::from(if waited { at_once.min(self.targets.waited[target]) } else { at_once })
    }

    /// What it costs that a segment has the key of a target, or has not.
    fn named(&self, first: usize, last: usize, target: usize) -> f64 {
        let key = self.targets.key[target];
        if key == 0 {
            return 0.0;
        }
        f64::from(self.costs.keys[usize::from(!self.items.key[first..=last].contains(&key))])
    }

    /// The best way back, and how much worse the best way is on which anything differs.
    fn backwards(&self) -> Result<Released> {
        let (count, targets) = (self.items.time_us.len(), self.targets.time_us.len());
        let end = &self.layers[count];
        let rest = |node: &Node| self.skipped[targets] - self.skipped[node.dealt as usize];
        let best = end.iter().min_by(|a, b| (a.cost + rest(a)).total_cmp(&(b.cost + rest(b))));
        let Some(best) = best else { return Ok(Margins::new(self, f64::INFINITY).out) };
        let mut margins = Margins::new(self, best.cost + rest(best));
        margins.best(self, best);
        if !self.limits.margins {
            return Ok(margins.out);
        }
        let mut behind = Ring::new(self.shapes.len(), || Behind::new(targets));
        for node in end {
            behind.at(count).put(node, rest(node), &self.ahead);
        }
        let mut begun = self.begun();
        for at in (0..count).rev() {
            interrupt::check()?;
            if let Some(done) = self.layers.get(at + behind.0.len()) {
                behind.at(at).clear(done);
            }
            self.begin(at, &mut begun);
            for node in &self.layers[at] {
                let other = self.left_over(at, node);
                let mut least = margins.left_over(self, at, node, other, &behind.at(at + 1).cost);
                self.follow(node, &mut begun);
                for length in 1..=self.longest(at, node, &begun) {
                    let behind = behind.at(at + length);
                    if self.segment(at, length, node, margins.out.cost - behind.least, &mut begun) {
                        least = least.min(margins.segment(self, at, length, node, &mut begun.whole, &behind.cost));
                    }
                }
                behind.at(at).put(node, least, &self.ahead);
            }
        }
        margins.started(&self.layers[0], &behind.at(0).cost);
        Ok(margins.out)
    }
}
