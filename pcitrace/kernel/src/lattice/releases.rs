//! Segments of items that release targets: each ends before the targets that it releases, in their order.
//!
//! Another reading of a sequence than `search`: one segment may release several targets, and what a segment costs
//! depends on all of its items. A node is how many items were read and how many targets were dealt with.

use std::ops::Range;

use super::model::{NONE, bin};
use crate::error::Result;
use crate::interrupt;

/// Places of an item in its segment that costs tell apart, counted from the last.
pub const PLACES: usize = 4;

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
}

/// First and last item of the segment that releases each target, NONE if none does, and how sure either is.
#[derive(Default)]
pub struct Released {
    pub first: Vec<u32>,
    pub last: Vec<u32>,
    pub margins: Vec<[f32; 2]>,
    /// Of each item: how much more the best reading costs in which it is something else.
    pub item: Vec<f32>,
    pub cost: f64,
}

/// The last step of a way: from which node of the layer before, over how many items; how many targets it released, 0 if
/// it left its item over.
#[derive(Clone, Copy, Default)]
struct Step(u64);

impl Step {
    fn new(from: usize, items: usize, count: usize) -> Self {
        Self((from << 32 | items << 16 | count) as u64)
    }

    fn from(self) -> usize {
        (self.0 >> 32) as usize
    }

    fn items(self) -> usize {
        (self.0 >> 16) as usize & 0xFFFF
    }

    fn count(self) -> usize {
        self.0 as usize & 0xFFFF
    }
}

/// So many targets were dealt with; the cheapest way here.
#[derive(Clone, Copy)]
struct Node {
    dealt: u32,
    cost: f64,
    step: Step,
}

/// What is kept of the items that one segment may have: a power of two, for what is kept of an item lies by the last
/// bits of its number.
struct Ring<T>(Vec<T>);

impl<T> Ring<T> {
    fn new(longest: usize, new: impl Fn() -> T) -> Self {
        Self(std::iter::repeat_with(new).take((longest + 1).next_power_of_two().max(2)).collect())
    }

    fn at(&mut self, item: usize) -> &mut T {
        let last = self.0.len() - 1;
        &mut self.0[item & last]
    }
}

/// A layer that steps still lead to: by targets that were dealt with, the cheapest way there.
struct Open {
    cost: Vec<f64>,
    step: Vec<Step>,
    /// Where costs are written.
    used: Range<usize>,
    /// What the best way costs, with what is left at the least.
    least: f64,
}

impl Open {
    fn new(targets: usize) -> Self {
        let cost = vec![f64::INFINITY; targets + 1];
        Self { step: vec![Step::default(); cost.len()], cost, used: 0..0, least: f64::INFINITY }
    }

    /// Comes here on ways that differ in how many targets they released: what each costs, and its step.
    fn arrive(&mut self, dealt: usize, costs: &[f64], before: f64, step: Step, ahead: &[f64]) {
        if costs.is_empty() {
            return;
        }
        let places = dealt..dealt + costs.len();
        let known =
            self.cost[places.clone()].iter_mut().zip(&mut self.step[places.clone()]).zip(&ahead[places.clone()]);
        let mut least = self.least;
        for (more, (cost, ((known, way), ahead))) in (0..).zip(costs.iter().zip(known)) {
            let cost = before + cost;
            // Without a branch: which one is better is hard to foresee.
            let (better, new, whole) = (cost < *known, Step(step.0 + more), cost + ahead);
            *known = if better { cost } else { *known };
            *way = if better { new } else { *way };
            least = if whole < least { whole } else { least };
        }
        self.least = least;
        let used = if self.used.is_empty() { places.clone() } else { self.used.clone() };
        self.used = used.start.min(places.start)..used.end.max(places.end);
    }

    /// Its nodes, the best of them only; it is empty then.
    fn close(&mut self, ahead: &[f64], limits: &Limits) -> Vec<Node> {
        let used = std::mem::take(&mut self.used);
        let most = std::mem::replace(&mut self.least, f64::INFINITY) + limits.cost;
        let whole = |node: &Node| node.cost + ahead[node.dealt as usize];
        let nodes =
            used.clone().map(|dealt| Node { dealt: dealt as u32, cost: self.cost[dealt], step: self.step[dealt] });
        let mut nodes: Vec<Node> = nodes.filter(|node| node.cost.is_finite() && whole(node) <= most).collect();
        self.cost[used].fill(f64::INFINITY);
        // The best goes on first: what the others would come to is known as too much sooner.
        nodes.sort_by(|a, b| whole(a).total_cmp(&whole(b)));
        nodes.truncate(limits.nodes);
        nodes
    }
}

/// What the best ways from a layer have left to pay: by targets that are dealt with.
struct Left {
    cost: Vec<f64>,
    /// How much more than what is left at the least.
    least: f64,
}

impl Left {
    fn new(targets: usize) -> Self {
        Self { cost: vec![f64::INFINITY; targets + 1], least: f64::INFINITY }
    }

    fn put(&mut self, node: &Node, cost: f64, ahead: &[f64]) {
        self.cost[node.dealt as usize] = cost;
        self.least = self.least.min(cost - ahead[node.dealt as usize]);
    }

    fn clear(&mut self, nodes: &[Node]) {
        nodes.iter().for_each(|node| self.cost[node.dealt as usize] = f64::INFINITY);
        self.least = f64::INFINITY;
    }
}

/// The least of any run of values: for each power of two the least of so many from each place on.
struct LeastWithin {
    levels: Vec<Vec<f32>>,
}

impl LeastWithin {
    fn new(values: &[f32]) -> Self {
        let mut levels = vec![values.to_vec()];
        for half in std::iter::successors(Some(1), |half| Some(2 * half)).take_while(|half| 2 * half <= values.len()) {
            let below = &levels[levels.len() - 1];
            let level = below.iter().zip(&below[half..]).map(|(one, other)| one.min(*other)).collect();
            levels.push(level);
        }
        Self { levels }
    }

    /// From `first` to `last`, both included.
    fn get(&self, first: usize, last: usize) -> f32 {
        let level = (last - first + 1).ilog2() as usize;
        let values = &self.levels[level];
        values[first].min(values[last + 1 - (1 << level)])
    }
}

/// What the segments that begin with an item cost, in steps from coarse to fine.
struct Begun {
    /// Their items, by how many.
    items: Vec<f64>,
    /// The targets behind the first that a node releases, by how many.
    follow: Vec<f64>,
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
    lags: LeastWithin,
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
        let widest =
            items.count.iter().map(|count| *count as usize).max().unwrap_or(0).clamp(largest, usize::from(u16::MAX));
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
        let (lags, layers) = (LeastWithin::new(&costs.lag), Vec::new());
        Self { items, targets, costs, limits, lags, shapes, ahead, passed, skipped, layers }
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
            for (number, node) in nodes.iter().enumerate() {
                let (other, left) = (self.left(at, node), Step::new(number, 1, 0));
                self.arrive(open.at(at + 1), at + 1, node.dealt as usize, &[other], node.cost, left);
                for length in 1..=self.longest(at, node, &mut begun) {
                    let next = open.at(at + length);
                    if !self.segment(at, length, node, next.least, &mut begun) {
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
    fn left(&self, at: usize, node: &Node) -> f64 {
        let all = node.dealt as usize == self.targets.time_us.len();
        f64::from(if all { self.items.beyond[at] } else { self.items.other[at] })
    }

    /// Comes to a layer, where what was not released by the time of its item never is.
    fn arrive(&self, next: &mut Open, to: usize, dealt: usize, costs: &[f64], before: f64, step: Step) {
        let passed = self.passed[to];
        let few = passed.saturating_sub(dealt).min(costs.len());
        for (more, cost) in costs[..few].iter().enumerate() {
            let skipped = self.skipped[passed] - self.skipped[dealt + more];
            next.arrive(passed, &[cost + skipped], before, Step(step.0 + more as u64), &self.ahead);
        }
        next.arrive(dealt + few, &costs[few..], before, Step(step.0 + few as u64), &self.ahead);
    }

    fn begun(&self) -> Begun {
        let lags = Ring::new(self.shapes.len(), || vec![(NONE, 0.0); self.targets.time_us.len()]);
        Begun { items: Vec::new(), follow: Vec::new(), whole: Vec::new(), lags }
    }

    /// What the items of the segments that begin with an item cost.
    fn begin(&self, at: usize, begun: &mut Begun) {
        begun.items.clear();
        let most = self.shapes.len().min(self.items.time_us.len() - at);
        let mut joined = 0.0;
        for last in at..at + most {
            joined += if last > at { f64::from(self.items.joins[last]) } else { 0.0 };
            if joined > self.limits.cost {
                break;
            }
            let places: f64 =
                (at..=last).map(|item| f64::from(self.items.place[item][(last - item).min(PLACES - 1)])).sum();
            begun.items.push(joined + places);
        }
    }

    /// How many items the segments from a node on may have, for each ends before its first target; and what the targets
    /// behind that cost.
    fn longest(&self, at: usize, node: &Node, begun: &mut Begun) -> usize {
        let dealt = node.dealt as usize;
        let Some(target) = self.targets.time_us.get(dealt) else { return 0 };
        let widest = self.shapes.first().map_or(0, |shape| shape.0.len());
        begun.follow.clear();
        begun.follow.push(0.0);
        let mut followed = 0.0;
        for waited in self.targets.waited[dealt + 1..].iter().take(widest - 1) {
            followed += f64::from(*waited);
            if followed > 2.0 * self.limits.cost {
                break;
            }
            begun.follow.push(followed);
        }
        self.items.time_us[at..at + begun.items.len()].partition_point(|us| us <= target)
    }

    /// Works out what a segment costs, by how many targets it releases; not if each way with it costs too much.
    fn segment(&self, at: usize, length: usize, node: &Node, best: f64, begun: &mut Begun) -> bool {
        begun.whole.clear();
        let (last, dealt) = (at + length - 1, node.dealt as usize);
        let (shape, least) = &self.shapes[length - 1];
        let left = best + self.limits.cost - node.cost - least - self.ahead[dealt + 1];
        if begun.items[length - 1] + self.ahead[dealt] - self.ahead[dealt + 1] > left {
            return false;
        }
        let known = &mut begun.lags.at(last)[dealt];
        if known.0 != last as u32 {
            *known = (last as u32, self.lag(last, dealt));
        }
        let base = begun.items[length - 1] + known.1;
        if base > left {
            return false;
        }
        let stated = self.items.count[last] as usize;
        let most = self.costs.shape.len().max(stated);
        begun.whole.extend(begun.follow.iter().zip(shape).take(most).map(|(follow, shape)| base + follow + shape));
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
        let (low, high) =
            (bin((self.targets.ready_us[target] - now).max(0.0)), bin(self.targets.time_us[target] - now));
        let at_once = self.lags.get(low.min(high), high);
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
        let mut behind = Ring::new(self.shapes.len(), || Left::new(targets));
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
                let other = self.left(at, node);
                let mut least = margins.left(self, at, node, other, &behind.at(at + 1).cost);
                for length in 1..=self.longest(at, node, &mut begun) {
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

/// How much worse the best way is on which anything differs from the best one.
struct Margins {
    out: Released,
    /// For each item the first target of its segment on the best way.
    mine: Vec<u32>,
    /// No margin is larger.
    cap: f32,
}

impl Margins {
    fn new(search: &Search, cost: f64) -> Self {
        let (items, targets) = (search.items.time_us.len(), search.targets.time_us.len());
        let cap = search.limits.cost as f32;
        let out = Released {
            first: vec![NONE; targets],
            last: vec![NONE; targets],
            margins: vec![[cap; 2]; targets],
            item: vec![cap; items],
            cost,
        };
        Self { out, mine: vec![NONE; items], cap }
    }

    /// Writes down the best way.
    fn best(&mut self, search: &Search, end: &Node) {
        let (mut to, mut node) = (self.mine.len(), end);
        while to > 0 {
            let at = to - node.step.items();
            let before = &search.layers[at][node.step.from()];
            let dealt = before.dealt as usize;
            for target in dealt..dealt + node.step.count() {
                self.out.first[target] = at as u32;
                self.out.last[target] = to as u32 - 1;
            }
            if node.step.count() > 0 {
                self.mine[at..to].fill(before.dealt);
            }
            (to, node) = (at, before);
        }
    }

    /// Takes notice of the ways on which an item of a node is left over; what the best of them has left to pay.
    fn left(&mut self, search: &Search, at: usize, node: &Node, other: f64, behind: &[f64]) -> f64 {
        let (dealt, passed) = (node.dealt as usize, search.passed[at + 1]);
        let after = dealt.max(passed);
        let cost = other + search.skipped[after] - search.skipped[dealt] + behind[after];
        let more = self.more(node, cost);
        self.skips(dealt..after, more);
        if self.mine[at] != NONE {
            self.out.item[at] = self.out.item[at].min(more);
        }
        cost
    }

    /// Takes notice of the ways with a segment, whose costs by targets become those of all that is left to pay; what the
    /// best of them has left to pay.
    fn segment(
        &mut self,
        search: &Search,
        at: usize,
        length: usize,
        node: &Node,
        costs: &mut [f64],
        behind: &[f64],
    ) -> f64 {
        let (dealt, last, passed) = (node.dealt as usize, at + length - 1, search.passed[at + length]);
        let few = passed.saturating_sub(dealt + 1).min(costs.len());
        for (released, cost) in (dealt + 1..).zip(&mut costs[..few]) {
            *cost += search.skipped[passed] - search.skipped[released] + behind[passed];
            self.skips(released..passed, self.more(node, *cost));
        }
        costs[few..].iter_mut().zip(&behind[dealt + 1 + few..]).for_each(|(cost, behind)| *cost += behind);
        let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
        let more = self.more(node, least);
        if more >= self.cap {
            return least;
        }
        let mut rest = f64::INFINITY;
        for (target, cost) in (dealt..dealt + costs.len()).zip(costs).rev() {
            rest = rest.min(*cost);
            self.differs(target, at as u32, last as u32, self.more(node, rest));
        }
        for item in at..=last {
            if self.mine[item] != node.dealt {
                self.out.item[item] = self.out.item[item].min(more);
            }
        }
        least
    }

    /// How much worse than the best way one is, of which so much is left to pay behind a node.
    fn more(&self, node: &Node, cost: f64) -> f32 {
        (node.cost + cost - self.out.cost).max(0.0) as f32
    }

    fn skips(&mut self, targets: Range<usize>, more: f32) {
        targets.for_each(|target| self.differs(target, NONE, NONE, more));
    }

    fn differs(&mut self, target: usize, first: u32, last: u32, more: f32) {
        let [at_first, at_last] = &mut self.out.margins[target];
        if self.out.first[target] != first {
            *at_first = at_first.min(more);
        }
        if self.out.last[target] != last {
            *at_last = at_last.min(more);
        }
    }

    /// The targets that were released before the first item, on ways that begin with more of them than the best.
    fn started(&mut self, layer: &[Node], behind: &[f64]) {
        for node in layer {
            let more = self.more(node, behind[node.dealt as usize]);
            for target in 0..node.dealt as usize {
                if self.out.last[target] != NONE {
                    self.out.margins[target] = self.out.margins[target].map(|margin| margin.min(more));
                }
            }
        }
    }
}
