"""Numbers that a script gives to W&B, TensorBoard or MLflow go to Cordée, too: neither script nor back end changes."""
