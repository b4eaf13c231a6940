#!/usr/bin/env bash
# OpenRLHF 0.11.2 with a spec's advantages, on one GPU: pip install rewardspec 'openrlhf[vllm]==0.11.2', python data.py, then
#   ./run.sh Qwen/Qwen2.5-0.5B-Instruct [more arguments of train_ppo_ray]
# For rewardspec: the launcher with the arguments before `--`, group_norm and the extra_logs that reward.py returns.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
model="$1"
shift
exec python -m rewardspec.adapters.openrlhf --spec "$here/spec.yaml" --set limit=64 -- \
  --algo.advantage.estimator group_norm \
  --reward.remote_url "$here/reward.py" \
  --data.prompt_dataset "$here/train.jsonl" \
  --data.input_key input \
  --data.label_key label \
  --data.apply_chat_template \
  --data.max_len 512 \
  --rollout.max_new_tokens 256 \
  --rollout.n_samples_per_prompt 8 \
  --rollout.batch_size 64 \
  --rollout.micro_batch_size 16 \
  --train.batch_size 512 \
  --train.micro_batch_size 8 \
  --train.num_episodes 1 \
  --train.colocate_all \
  --vllm.num_engines 1 \
  --vllm.enable_sleep \
  --vllm.gpu_memory_utilization 0.5 \
  --ds.enable_sleep \
  --ds.zero_stage 3 \
  --actor.model_name_or_path "$model" \
  --actor.num_gpus_per_node 1 \
  --actor.adam.lr 1e-6 \
  --algo.kl.init_coef 0 \
  "$@"
