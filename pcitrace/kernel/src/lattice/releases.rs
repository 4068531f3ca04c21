//! Segments of items that release targets: each ends before the targets that it releases, in their order.
//!
//! Another reading of a sequence than `search`: one segment may release several targets, and what a segment costs
//! depends on all of its items. A node is how many items were read and how many targets were dealt with.

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

/// So many targets were dealt with; the cheapest way here and where it came from.
#[derive(Clone, Copy)]
struct Node {
    dealt: u32,
    cost: f64,
    from: (u32, u32),
    /// Targets that its last step released; 0 if that left an item over.
    count: u32,
}

/// A step: some items, left over or a segment, to a node.
struct Step {
    items: u32,
    count: u32,
    cost: f64,
}

/// Where in its layer the node is that has dealt with so many targets, for the layers that steps lead to.
struct Lookup {
    layers: Vec<Vec<u32>>,
}

impl Lookup {
    /// For steps of so many items at the most.
    fn new(longest: usize, targets: usize) -> Self {
        Self { layers: vec![vec![NONE; targets + 1]; longest + 1] }
    }

    fn get(&self, layer: usize, dealt: u32) -> Option<usize> {
        let place = self.layers[layer % self.layers.len()][dealt as usize];
        (place != NONE).then_some(place as usize)
    }

    fn put(&mut self, layer: usize, dealt: u32, place: u32) {
        let count = self.layers.len();
        self.layers[layer % count][dealt as usize] = place;
    }

    /// Knows the nodes of a layer; its room must have been given up.
    fn begin(&mut self, layer: usize, nodes: &[Node]) {
        for (place, node) in nodes.iter().enumerate() {
            self.put(layer, node.dealt, place as u32);
        }
    }

    /// Gives up the room of a layer with these nodes.
    fn end(&mut self, layer: usize, nodes: &[Node]) {
        for node in nodes {
            self.put(layer, node.dealt, NONE);
        }
    }
}

struct Search<'a> {
    items: &'a Items,
    targets: &'a Targets,
    costs: &'a Costs,
    limits: &'a Limits,
    layers: Vec<Vec<Node>>,
    lookup: Lookup,
}

/// Finds the cheapest reading; an error if the work is to end.
pub fn read(items: &Items, targets: &Targets, costs: &Costs, limits: &Limits) -> Result<Released> {
    let longest = costs.shape.first().map_or(1, Vec::len).max(1);
    let lookup = Lookup::new(longest, targets.time_us.len());
    let mut search = Search { items, targets, costs, limits, layers: Vec::new(), lookup };
    search.forwards()?;
    search.backwards()
}

impl Search<'_> {
    fn forwards(&mut self) -> Result<()> {
        let count = self.items.time_us.len();
        self.layers.resize_with(count + 1, Vec::new);
        let first = self.items.time_us.first().copied().unwrap_or(f64::INFINITY);
        let passed = self.targets.time_us.partition_point(|us| *us < first);
        let most = (self.targets.time_us.len() - passed).min(self.limits.nodes);
        let mut cost = 0.0;
        for queued in 0..=most {
            self.layers[0].push(Node { dealt: (passed + queued) as u32, cost, from: (NONE, NONE), count: 0 });
            // What was queued before the first item follows what went before it.
            let waited = self.targets.waited.get(passed + queued).copied().unwrap_or_default();
            cost += f64::from(self.costs.before + waited);
        }
        let ahead = self.ahead();
        let mut steps = Vec::new();
        for at in 0..count {
            interrupt::check()?;
            let mut layer = std::mem::take(&mut self.layers[at]);
            self.lookup.end(at, &layer);
            prune(&mut layer, &ahead, self.limits);
            for (number, node) in layer.iter().enumerate() {
                self.steps(at, node.dealt, &mut steps);
                for step in &steps {
                    self.arrive(at, number, node, step);
                }
            }
            self.layers[at] = layer;
        }
        self.lookup.end(count, &self.layers[count]);
        prune(&mut self.layers[count], &ahead, self.limits);
        Ok(())
    }

    /// What the targets from each on cost at the least, whatever releases them.
    fn ahead(&self) -> Vec<f64> {
        let at_once = self.costs.lag.iter().copied().fold(f32::INFINITY, f32::min);
        let mut ahead = vec![0.0; self.targets.waited.len() + 1];
        for (target, waited) in self.targets.waited.iter().enumerate().rev() {
            ahead[target] = ahead[target + 1] + f64::from(waited.min(at_once));
        }
        ahead
    }

    fn arrive(&mut self, at: usize, number: usize, node: &Node, step: &Step) {
        let to = at + step.items as usize;
        let (dealt, skipped) = self.passed(to, node.dealt + step.count);
        let cost = node.cost + step.cost + skipped;
        let new = Node { dealt, cost, from: (at as u32, number as u32), count: step.count };
        let layer = &mut self.layers[to];
        match self.lookup.get(to, dealt) {
            Some(place) if layer[place].cost <= cost => {}
            Some(place) => layer[place] = new,
            None => {
                self.lookup.put(to, dealt, layer.len() as u32);
                layer.push(new);
            }
        }
    }

    /// What was not released by the time of an item never is: how many targets are dealt with then, and what it costs.
    fn passed(&self, item: usize, mut dealt: u32) -> (u32, f64) {
        let now = self.items.time_us.get(item).copied().unwrap_or(f64::INFINITY);
        let mut cost = 0.0;
        while self.targets.time_us.get(dealt as usize).is_some_and(|us| *us < now) {
            cost += f64::from(self.targets.skip[dealt as usize]);
            dealt += 1;
        }
        (dealt, cost)
    }

    /// All steps that are possible from a node.
    fn steps(&self, at: usize, dealt: u32, steps: &mut Vec<Step>) {
        steps.clear();
        steps.push(Step { items: 1, count: 0, cost: f64::from(self.items.other[at]) });
        let Some(target) = self.targets.time_us.get(dealt as usize) else { return };
        let (longest, largest) = (self.costs.shape[0].len(), self.costs.shape.len());
        let mut joined = 0.0;
        for length in 1..=longest {
            let last = at + length - 1;
            if last >= self.items.time_us.len() || self.items.time_us[last] > *target {
                break;
            }
            joined += if length > 1 { f64::from(self.items.joins[last]) } else { 0.0 };
            if joined > self.limits.cost {
                break;
            }
            let places: f64 =
                (at..=last).map(|item| f64::from(self.items.place[item][(last - item).min(PLACES - 1)])).sum();
            let base = joined + places + self.lag(last, dealt);
            if base > 2.0 * self.limits.cost {
                continue;
            }
            let mut followed = self.named(at, last, dealt);
            let stated = self.items.count[last];
            for count in 1..=largest.max(stated as usize) as u32 {
                let next = (dealt + count) as usize;
                let shape = f64::from(self.costs.shape[(count as usize).min(largest) - 1][length - 1]);
                let miscount = if stated == 0 || stated == count { 0.0 } else { f64::from(self.costs.miscount) };
                let cost = base + followed + shape + miscount;
                if cost.is_finite() {
                    steps.push(Step { items: length as u32, count, cost });
                }
                if next >= self.targets.time_us.len() {
                    break;
                }
                followed += f64::from(self.targets.waited[next]) + self.named(at, last, next as u32);
                if followed > 2.0 * self.limits.cost {
                    break;
                }
            }
        }
    }

    fn lag(&self, last: usize, target: u32) -> f64 {
        let (now, at) = (self.items.time_us[last], target as usize);
        let waited = self.targets.free_us[at] > now;
        let (low, high) = (bin((self.targets.ready_us[at] - now).max(0.0)), bin(self.targets.time_us[at] - now));
        let at_once = self.costs.lag[low.min(high)..=high].iter().copied().fold(f32::INFINITY, f32::min);
        f64::from(if waited { at_once.min(self.targets.waited[at]) } else { at_once })
    }

    /// What it costs that a segment has the key of a target, or has not.
    fn named(&self, first: usize, last: usize, target: u32) -> f64 {
        let key = self.targets.key[target as usize];
        if key == 0 || self.costs.keys[0] == self.costs.keys[1] {
            return 0.0;
        }
        f64::from(self.costs.keys[usize::from(!self.items.key[first..=last].contains(&key))])
    }

    /// The best way back, and how much worse the best way is on which anything differs.
    fn backwards(&mut self) -> Result<Released> {
        let (count, targets) = (self.items.time_us.len(), self.targets.time_us.len());
        let cap = self.limits.cost as f32;
        let mut out = Released {
            first: vec![NONE; targets],
            last: vec![NONE; targets],
            margins: vec![[cap; 2]; targets],
            item: vec![cap; count],
            cost: 0.0,
        };
        let rest = |node: &Node| self.targets.skip[node.dealt as usize..].iter().map(|skip| f64::from(*skip)).sum();
        let mut behind: Vec<Vec<f64>> = self.layers.iter().map(|layer| vec![f64::INFINITY; layer.len()]).collect();
        behind[count] = self.layers[count].iter().map(rest).collect();
        let totals = self.layers[count].iter().zip(&behind[count]).map(|(node, rest)| node.cost + rest);
        let Some((best, total)) = totals.enumerate().min_by(|a, b| a.1.total_cmp(&b.1)) else { return Ok(out) };
        out.cost = total;
        let mine = self.best(best, &mut out);
        let mut steps = Vec::new();
        for at in (0..count).rev() {
            interrupt::check()?;
            let done = at + 1 + self.lookup.layers.len();
            self.lookup.end(done, self.layers.get(done).map_or(&[], Vec::as_slice));
            self.lookup.begin(at + 1, &self.layers[at + 1]);
            for (number, node) in self.layers[at].iter().enumerate() {
                self.steps(at, node.dealt, &mut steps);
                for step in &steps {
                    let to = at + step.items as usize;
                    let dealt = node.dealt + step.count;
                    let (after, skipped) = self.passed(to, dealt);
                    let Some(next) = self.lookup.get(to, after) else { continue };
                    let cost = step.cost + skipped + behind[to][next];
                    behind[at][number] = behind[at][number].min(cost);
                    let more = (node.cost + cost - total).max(0.0) as f32;
                    self.differs(at, node, step, (dealt, after), more, &mine, &mut out);
                }
            }
        }
        self.started(&behind[0], total, &mut out);
        Ok(out)
    }

    /// Writes down the best way; returns for each item the first target of its segment.
    fn best(&self, end: usize, out: &mut Released) -> Vec<u32> {
        let mut mine = vec![NONE; self.items.time_us.len()];
        let mut at = (self.items.time_us.len() as u32, end as u32);
        loop {
            let node = self.layers[at.0 as usize][at.1 as usize];
            if node.from.0 == NONE {
                return mine;
            }
            let (first, last) = (node.from.0, at.0 - 1);
            let dealt = self.layers[first as usize][node.from.1 as usize].dealt;
            for target in dealt..dealt + node.count {
                out.first[target as usize] = first;
                out.last[target as usize] = last;
            }
            if node.count > 0 {
                mine[first as usize..=last as usize].fill(dealt);
            }
            at = node.from;
        }
    }

    #[allow(clippy::too_many_arguments)] // one call a step, on the hot path
    fn differs(
        &self,
        at: usize,
        node: &Node,
        step: &Step,
        (dealt, after): (u32, u32),
        more: f32,
        mine: &[u32],
        out: &mut Released,
    ) {
        if more >= self.limits.cost as f32 {
            return;
        }
        let (first, last) = (at as u32, at as u32 + step.items - 1);
        for target in node.dealt..after {
            let target_at = target as usize;
            let (first, last) = if target < dealt { (first, last) } else { (NONE, NONE) };
            let [at_first, at_last] = &mut out.margins[target_at];
            if out.first[target_at] != first {
                *at_first = at_first.min(more);
            }
            if out.last[target_at] != last {
                *at_last = at_last.min(more);
            }
        }
        let label = if step.count > 0 { node.dealt } else { NONE };
        for item in first..=last {
            if mine[item as usize] != label {
                let margin = &mut out.item[item as usize];
                *margin = margin.min(more);
            }
        }
    }

    /// The targets that were released before the first item, on ways that begin with more of them than the best.
    fn started(&self, behind: &[f64], total: f64, out: &mut Released) {
        for (node, behind) in self.layers[0].iter().zip(behind) {
            let more = (node.cost + behind - total).max(0.0) as f32;
            for target in 0..node.dealt as usize {
                if out.last[target] != NONE {
                    for margin in &mut out.margins[target] {
                        *margin = margin.min(more);
                    }
                }
            }
        }
    }
}

/// Keeps the best nodes of an item, by what they cost and at the least will.
fn prune(layer: &mut Vec<Node>, ahead: &[f64], limits: &Limits) {
    let whole = |node: &Node| node.cost + ahead[node.dealt as usize];
    let best = layer.iter().map(whole).fold(f64::INFINITY, f64::min);
    layer.retain(|node| whole(node) <= best + limits.cost);
    if layer.len() > limits.nodes {
        layer.sort_by(|a, b| whole(a).total_cmp(&whole(b)));
        layer.truncate(limits.nodes);
    }
}
