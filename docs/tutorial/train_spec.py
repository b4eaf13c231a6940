"""The same, with the spec in place of the weights."""

from rewards import brief, correct
from tiny import model, prompts, tokenizer
from trl import GRPOConfig

from rewardspec.adapters.trl import RewardSpecGRPOTrainer

args = GRPOConfig(
    output_dir="after",
    max_steps=60,
    num_generations=8,
    per_device_train_batch_size=64,
    max_completion_length=12,
    learning_rate=1e-2,
    logging_steps=1,
    report_to="none",
    use_cpu=True,
    bf16=False,
    save_strategy="no",
    seed=1,
)
trainer = RewardSpecGRPOTrainer(
    model(),
    reward_funcs=[correct, brief],  # matched to the spec's columns by name
    spec="spec.yaml",
    rollout_log="rollouts",
    args=args,
    train_dataset=prompts(),
    processing_class=tokenizer(),
)
trainer.train()
