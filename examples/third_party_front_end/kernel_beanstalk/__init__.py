"""The protocol of beanstalkd on the messaging kernel's broker."""
