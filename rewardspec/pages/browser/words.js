// What the numbers are called on a page, and what they are.

const OF_STEPS = [
  { key: "step", head: "step", show: String },
  { key: "rollouts", head: "rollouts", show: count },
  { key: "groups", head: "groups", show: count },
  { key: "groups_without_signal", title: "Groups without signal", head: "dead groups", show: rate, about: "groups whose advantages are all equal: nothing is learned from them" },
  { key: "all_wrong", title: "All wrong", head: "all wrong", show: rate, about: "dead groups in which no rollout is right" },
  { key: "tied", title: "Tied", head: "tied", show: rate, about: "dead groups in which some rollouts are right, and all advantages are equal" },
  { key: "all_right", title: "All right", head: "all right", show: rate, about: "dead groups in which every rollout is right" },
  { key: "rollouts_without_signal", title: "Rollouts without signal", head: "rollouts at 0", show: rate, about: "rollouts whose advantage is 0" },
  { key: "groups_kept", head: "kept", show: rate, about: "groups that stay in the batch" },
  { key: "effective", title: "Effective sample size", head: "effective", show: rate, about: "(sum |A|)^2 / (N sum A^2): 100% where all rollouts pull alike, near 0 where a few do" },
  { key: "advantage_spread", title: "Spread of a group", head: "spread", show: number, about: "max - min of the advantage in a group, mean over groups" },
  { key: "live_size", title: "Size of live advantages", head: "live |A|", show: number, about: "the mean |advantage| in groups with signal" },
  { key: "batch_factor", title: "Factor of the batch's normalisation", head: "batch x", show: number, about: "what the batch's normalisation multiplies advantages by" },
  { key: "total", title: "Reward", head: "reward", show: number, about: "the mean reward in total, over rollouts" },
  { key: "total_std", title: "Spread of the reward", head: "reward std", show: number, about: "the standard deviation of the reward in a group, mean over groups" },
  { key: "right", title: "Right answers", head: "right", show: rate, about: "rollouts that are right" },
];

function kindOf(key) {
  return OF_STEPS.find((kind) => kind.key === key);
}

const OF_COMPONENTS = [
  { key: "name", head: "component", words: true },
  { key: "weight", head: "weight", show: number, about: "the mean size of its weight" },
  { key: "mean", head: "mean", show: number, about: "over rollouts in which it is present" },
  { key: "std", head: "std", show: number, about: "over rollouts in which it is present" },
  { key: "at_low", head: "at low", show: rate, about: "rollouts in which it is at the lower end of its range" },
  { key: "at_high", head: "at high", show: rate, about: "rollouts in which it is at the upper end of its range" },
  { key: "missing", head: "missing", show: rate, about: "rollouts in which it is missing" },
  { key: "decides_in", head: "decides in", show: rate, about: "groups in which it is not the same for all rollouts" },
  { key: "share", head: "share", show: rate, about: "its part of the sum of |shares| of the advantage" },
  { key: "with_outcome", head: "with outcome", show: number, about: "its correlation with being right" },
  { key: "with_length", head: "with length", show: number, about: "its correlation with length: tokens, else characters" },
];

// A value of a column; a text that could be read as a number, or as true or false, in quotes.
function quotedIfLike(value) {
  if (typeof value !== "string") return plain(value);
  try {
    return typeof JSON.parse(value) === "string" ? value : `"${value}"`;
  } catch {
    return value;
  }
}

const OF_VALUES = [
  { key: "value", head: "value", show: quotedIfLike, words: true },
  { key: "groups", head: "groups", show: count },
  { key: "groups_without_signal", head: "dead groups", show: rate, about: "groups whose advantages are all equal: nothing is learned from them" },
  { key: "all_right", head: "all right", show: rate, about: "dead groups in which every rollout is right" },
  { key: "all_wrong", head: "all wrong", show: rate, about: "dead groups in which no rollout is right" },
  { key: "right", head: "right", show: rate, about: "rollouts that are right" },
];

// What a remark of the audit means for training, by its code.
const REMARKS = {
  "guarantee-broken": "The spec promises this for every group, and groups of this run break it, by exact arithmetic.",
  "wrong-above-right": "In these groups training prefers a wrong answer to a right one.",
  "wrong-rewarded": "Training makes these wrong answers more likely.",
  "right-punished": "Training makes these right answers less likely, though wrong ones stand beside them.",
  "length-pays-wrong": "Where no answer of these is right, training still moves their length.",
  "component-dead": "A component that never differs inside a group changes no advantage.",
  "component-decides": "What training follows is not what the weights say.",
  "reward-without-outcome": "The policy earns more without answering better: something else than the outcome pays.",
  "batch-step-amplifies": "Dividing by the deviation of a batch that holds many dead groups makes the advantages of the live ones larger.",
};

const NOT_KNOWN = [
  "Whether an answer that was measured as right is right.",
  "What the policy would have become under another spec: the rollouts were drawn under the run's own policy, so nothing here is a forecast of rewards or returns.",
  "What was not logged, and steps that the log leaves out.",
];

// Columns for `table`, of those that some row has a value for.
function columnsOf(kinds, rows) {
  return kinds
    .filter(({ key }) => rows.some((row) => row[key] !== null && row[key] !== undefined))
    .map((kind) => ({ ...kind, value: (row) => row[kind.key] }));
}

// A sentence as the page begins one; names in backticks stay as they are.
function sentence(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
