"""GRPO on two rewards, in TRL alone."""

from rewards import brief, correct
from tiny import model, prompts, tokenizer
from trl import GRPOConfig, GRPOTrainer

args = GRPOConfig(
    output_dir="before",
    reward_weights=[1.0, 1.0],
    max_steps=60,
    num_generations=8,
    per_device_train_batch_size=64,
    max_completion_length=12,
    learning_rate=1e-2,
    log_completions=True,  # a file of rollouts for each step
    num_completions_to_print=0,
    logging_steps=1,
    report_to="none",
    use_cpu=True,
    bf16=False,
    save_strategy="no",
    seed=1,
)
trainer = GRPOTrainer(
    model(), reward_funcs=[correct, brief], args=args, train_dataset=prompts(), processing_class=tokenizer()
)
trainer.train()
