#!/usr/bin/env bash
# verl 0.9.1 with a spec's advantages, on one GPU: pip install rewardspec 'verl[vllm]==0.9.1', python data.py, then
#   ./run.sh Qwen/Qwen2.5-0.5B-Instruct [more overrides]
# For rewardspec: the variable, adv_estimator, algorithm.rewardspec.* and the dict that reward.py returns.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
model="$1"
shift
export VERL_USE_EXTERNAL_MODULES="${VERL_USE_EXTERNAL_MODULES:+$VERL_USE_EXTERNAL_MODULES,}rewardspec.adapters.verl"
exec python -m verl.trainer.main_ppo \
  algorithm.adv_estimator=rewardspec \
  +algorithm.rewardspec.spec="$here/spec.yaml" \
  +algorithm.rewardspec.constants.limit=64 \
  reward.custom_reward_function.path="$here/reward.py" \
  data.train_files="$here/train.parquet" \
  data.val_files="$here/val.parquet" \
  data.train_batch_size=64 \
  data.max_prompt_length=128 \
  data.max_response_length=256 \
  actor_rollout_ref.model.path="$model" \
  actor_rollout_ref.rollout.name=vllm \
  actor_rollout_ref.rollout.n=8 \
  actor_rollout_ref.rollout.gpu_memory_utilization=0.5 \
  actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=16 \
  actor_rollout_ref.actor.ppo_mini_batch_size=64 \
  actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=16 \
  actor_rollout_ref.actor.optim.lr=1e-6 \
  trainer.n_gpus_per_node=1 \
  trainer.logger=console \
  trainer.val_before_train=false \
  trainer.total_training_steps=60 \
  "$@"
