"""Secrets: an account's secret values, model providers, signing identities and delegated signers."""
