function reportPage() {}
